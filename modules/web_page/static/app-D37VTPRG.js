function ci(){let e=document.getElementById("boot")?.textContent,t={version:"",build:"",now:Date.now()/1e3,user:{name:"",method:""},csrf:"",parts:[]};return e?{...t,...JSON.parse(e)}:t}var I=ci();var O,Os,Sn,Ee,wn,Pt,js,Nt,Ns,An,xn,ui,dt=Symbol.for("pv"),Rt={},Ft=[],pi=/^m(i|n|o|s|text|space)$/,Cn=Array.isArray,Tn=Ft.slice,De=Object.assign;function Fe(e){e&&e.parentNode&&e.remove()}function Dt(e,t,n){var s,o,r,i={},l=arguments.length;for(r in t)r=="key"?s=t[r]:r=="ref"&&typeof e!="function"?o=t[r]:i[r]=t[r];return l>2&&(i.children=l>3?Tn.call(arguments,2):n),pt(e,i,s,o,null)}function pt(e,t,n,s,o){var r={type:e,props:t,key:n,ref:s,__k:null,__:null,__b:0,__e:null,__c:null,constructor:dt,__v:o||++Os,__i:-1,__u:0};return!o&&O.vnode&&O.vnode(r),r}function je(e){return e.children}function ue(e,t){this.props=e,this.context=t,this.__g=0}function Oe(e,t){if(t==null)return e.__&&Oe(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!="function"||e.props.__P?null:Oe(e)}function di(e){var t,n=e.__v,s=n.__e,o=[],r=[],i=e.__P;i&&((t=De({constructor:dt},n)).__v=n.__v+1,O.vnode&&O.vnode(t),Mn(i,t,n,e.__n,i.namespaceURI,32&n.__u?[s]:null,o,s||Oe(n),32&n.__u,r),t.__v=n.__v,t.__.__k[t.__i]=t,Is(o,t,r),n.__=n.__e=null,t.__e!=s&&Ls(t))}function Ls(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(function(t){return t&&(e.__e=t.__e)}),Ls(e)}function Ms(e){(8&e.__g||(e.__g|=8,Ee.push(e),Pt++))&&wn==O.debounceRendering||((wn=O.debounceRendering)||queueMicrotask)(Ps)}function Ps(){try{for(var e,t=1;Ee.length;)Ee.length>t&&Ee.sort(js),e=Ee.shift(),t=Ee.length,8&e.__g&&di(e)}finally{(Pt=Ee.length)&&(wn||queueMicrotask)(Ps)}}function Rs(e,t,n,s,o,r,i,l,p,d,u){var m,f,c,h,v,$,g=s.__k||Ft,y=t.length;for(p=fi(n,t,g,p,y),m=0;m<y;m++)(c=n.__k[m])!=null&&(f=~c.__i&&g[c.__i]||Rt,c.__i=m,$=Mn(e,c,f,o,r,i,l,p,d,u),h=c.__e,(f.ref!=c.ref||8&f.__u)&&(f.ref&&En(f.ref,null,c,f),c.ref&&u.push(c.ref,c.__c||h,c)),v=v||h,4&c.__u?(p=Fs(c,p,e,!f.__v),f.__e&&(f.__e=null)):typeof c.type=="function"&&$!==void 0?p=$:h&&(p=h.nextSibling),c.__u&=-21);return n.__e=v,p}function fi(e,t,n,s,o){var r,i,l,p,d,u,m,f,c,h=n.length,v=h,$=0,g=0,y=e.__k=Array(o);for(r=0;r<o;r++)(i=t[r])!=null&&typeof i!="boolean"&&typeof i!="function"?(typeof i!="object"||i.constructor===String?i=y[r]=pt(null,i):Cn(i)?i=y[r]=pt(je,{children:i}):i.constructor===dt&&i.__b?i=y[r]=pt(i.type,i.props,i.key,i.ref,i.__v):y[r]=i,p=r+$,i.__=e,i.__b=e.__b+1,l=null,~(d=i.__i=mi(i,n,p,v))&&(v--,(l=n[d])&&(l.__u|=2)),l&&l.__v?(i.__u|=16,d==p-1?$--:d==p+1?$++:d!=p&&(d>p?$--:$++,g=1)):(~d||(o>h?$--:o<h&&$++),typeof i.type!="function"&&(i.__u|=4))):y[r]=null;if(g){for(u=[],m=[],r=0;r<o;r++)if((i=y[r])&&16&i.__u){for($=0,f=u.length;$<f;)u[c=$+f>>1]<i.__i?$=c+1:f=c;u[$]=i.__i,m[r]=$+1}for($=u.length;r--;)m[r]&&(m[r]==$?$--:y[r].__u|=4)}if(v)for(r=0;r<h;r++)!(l=n[r])||2&l.__u||(l.__e==s&&(s=Oe(l)),On(l,l));return s}function Fs(e,t,n,s){var o,r,i,l;if(typeof e.type=="function"){if(e.props.__P)return t;if(o=e.__k)for(r=0;r<o.length;r++)o[r]&&(o[r].__=e,t=Fs(o[r],t,n,!1));return t}for(t&&!t.parentNode&&(t=Oe(e))&&!t.parentNode&&(t=null),i=e.__e,l=t;l&&l.nodeType==8;)l=l.nextSibling;for(i!=l&&(!s&&n.moveBefore&&i.parentNode?n.moveBefore(i,t):n.insertBefore(i,t||null)),t=i;(t=t&&t.nextSibling)&&t.nodeType==8&&!t.data.startsWith("$s"););return t}function mi(e,t,n,s){var o,r=e.key,i=e.type,l=t[n],p=l&&!(2&l.__u);if(l===null&&r==null||p&&r==l.key&&i==l.type)return n;if(s>(p?1:0)){for(o=n-1;o>=0;o--)if((l=t[o])&&!(2&l.__u)&&r==l.key&&i==l.type)return o;for(o=n+1;o<t.length;o++)if((l=t[o])&&!(2&l.__u)&&r==l.key&&i==l.type)return o}return-1}function Es(e,t,n){n==null&&(n=""),t[0]=="-"?e.setProperty(t,n):e[t]=n}function jt(e,t,n,s,o){var r,i;if(t=="style")if(typeof n=="string")e.style.cssText=n;else{if(typeof s=="string"&&(e.style.cssText=s=""),s)for(t in s)n&&t in n||Es(e.style,t);if(n)for(t in n)s&&n[t]==s[t]||Es(e.style,t,n[t])}else if(t[0]=="o"&&t[1]=="n")typeof n!="function"&&(n=null),typeof s!="function"&&(s=null),(e.__e||(e.__e={}))[t]=n,n&&s||(i=xn[t]||(xn[t]=hi(t)),(e.__a||(e.__a={}))[t]=An,r=t!=(t=t.replace(Ns,"$1")),(t=t.slice(2))[0]<"a"&&(t=t.toLowerCase()),n?e.addEventListener(t,i,r):e.removeEventListener(t,i,r));else{if(o=="http://www.w3.org/2000/svg")t=t.replace(/xlink(H|:h)/,"h").replace(/sName$/,"s");else if(t!="width"&&t!="height"&&t!="href"&&t!="list"&&t!="form"&&t!="tabIndex"&&t!="download"&&t!="rowSpan"&&t!="colSpan"&&t!="role"&&t!="popover"&&t in e)try{return void(e[t]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&t[4]!="-"?e.removeAttribute(t):e.setAttribute(t,t=="popover"&&n==1?"":n)}}function hi(e){return function(t){var n=this.__e;if(n){if(n=n[e],t[Nt]==null)t[Nt]=An++;else if(t[Nt]<this.__a[e])return;return n(O.event?O.event(t):t)}}}function Mn(e,t,n,s,o,r,i,l,p,d){var u,m,f,c,h,v,$,g,y,E,k,oe,b,F,x,re,z,J,ce=t.type;if(t.constructor!==dt)return null;128&n.__u&&(p=32&n.__u,u=n.__c.__z)&&(t.__u|=p,m=r=[],u.nodeType==8?l=Lt(u,r):r.push(u),l=r[0]||l),(u=O.__b)&&u(t);e:if(typeof ce=="function"){f=i.length;try{if(g=t.props,y=(u=ce.prototype)&&u.render,E=(u=ce.contextType)&&s[u.__c],k=u?E?E.props.value:u.__:s,(c=n.__c)?(t.__c=c,2&c.__g&&(c.__g|=1)):(y?t.__c=c=new ce(g,k):(t.__c=c=new ue(g,k),c.constructor=ce,c.render=_i),E&&E.sub(c),c.state||(c.state={}),c.__n=s,c.__g|=8,c.__h=[],c.__k=[]),y&&(c.__s||(c.__s=c.state),ce.getDerivedStateFromProps&&(c.__s==c.state&&(c.__s=De({},c.__s)),De(c.__s,ce.getDerivedStateFromProps(g,c.__s)))),h=c.props,v=c.state,c.__v=t,n.__c){if(g!==h&&y&&!ce.getDerivedStateFromProps&&c.componentWillReceiveProps&&c.componentWillReceiveProps(g,k),t.__v==n.__v&&!(8&c.__g)||!(4&c.__g)&&c.shouldComponentUpdate&&c.shouldComponentUpdate(g,c.__s,k)===!1){t.__v!=n.__v&&(c.props=g,c.state=c.__s,c.__g&=-9),t.__e=n.__e,t.__k=n.__k,t.__k.some(function(_){_&&(_.__=t)}),Ft.push.apply(c.__h,c.__k),c.__k=[],c.__h.length&&i.push(c),l=Oe(n);break e}c.componentWillUpdate&&c.componentWillUpdate(g,c.__s,k),y&&c.componentDidUpdate&&c.__h.push(function(){c.componentDidUpdate(h,v,$)})}else y&&!ce.getDerivedStateFromProps&&c.componentWillMount&&c.componentWillMount(),y&&c.componentDidMount&&c.__h.push(c.componentDidMount);c.context=k,c.props=g,c.__P=e,c.__g&=-5,oe=O.__r,b=y?25:0;do c.__g&=-9,oe&&oe(t),u=c.render(c.props,c.state=c.__s,c.context);while(8&c.__g&&++b<25);y&&(Ft.push.apply(c.__h,c.__k),c.__k=[]),c.state=c.__s,c.getChildContext&&(s=De({},s,c.getChildContext())),y&&n.__c&&c.getSnapshotBeforeUpdate&&($=c.getSnapshotBeforeUpdate(h,v)),F=u&&u.type===je&&u.key==null?u.props.children:u,g.__P&&(u=l,o=(e=g.__P).namespaceURI,p=r=null,n.props&&n.props.__P!=e&&(n.__k.some(function(_){_&&On(_,_)}),n.__k=null),l=n.__k?Oe(n,0):null),l=Rs(e,Cn(F)?F:[F],t,n,s,o,r,i,l,p,d),g.__P&&(t.__e=null,l=u),t.__u&=-161,m&&m.some(Fe),c.__h.length&&i.push(c),1&c.__g&&(c.__g&=-4)}catch(_){if(i.length=f,t.__v=null,p||r)if(_&&_.then){if(t.__u|=128|p,r){for(~(z=r.indexOf(l||void 0))||(z=r.length);(J=r[z-1])&&J.nodeType==8;)z--;for(;z<r.length;z++)if(J=r[z])if(r[z]=null,x){if(J==re)break}else{if(J.nodeType!=8)break;J.data.startsWith("$s")&&(re=Lt(x=J))}}if(!x){for(;l&&l.nodeType==8&&l.nextSibling;)l=l.nextSibling;x=l}(u=Lt(x=t.__c.__z||(t.__c.__z=x)))?(t.__e=x,l=u):t.__e=l,l=l&&l.nextSibling}else r&&r.some(Fe);else t.__e=n.__e;t.__k||(t.__k=n.__k||[]),_&&_.then||Ds(t),O.__e(_,t,n)}}else l=t.__e=$i(n.__e,t,n,s,o,r,i,p,d,e);return(u=O.diffed)&&u(t),l}function Lt(e,t){if(e&&e.nodeType==8&&e.data.startsWith("$s"))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith("$s"))n++;else if(e.data.startsWith("/$s")&&!--n)return e}t&&t.push(e)}}function Ds(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(Ds))}function Is(e,t,n){for(var s=0;s<n.length;)En(n[s++],n[s++],n[s++]);O.__c&&O.__c(t,e),e.some(function(o){try{e=o.__h,o.__h=[],e.some(function(r){r.call(o)})}catch(r){O.__e(r,o.__v)}})}function $i(e,t,n,s,o,r,i,l,p,d){var u,m,f,c,h,v,$,g,y=n.props||Rt,E=t.props,k=t.type;if(k=="svg"?o="http://www.w3.org/2000/svg":k=="math"?o="http://www.w3.org/1998/Math/MathML":o||(o="http://www.w3.org/1999/xhtml"),r){for(u=0;u<r.length;u++)if((h=r[u])&&(k?h.localName==k:h.nodeType==3)){e=h,r[u]=null;break}}if(!e){if(g=d.ownerDocument||document,!k)return g.createTextNode(E);e=g.createElementNS(o,k,E.is?E:d),l&&(O.__m&&O.__m(t,r),l=!1),r=null}if(k){if(d=k=="template"&&e.content||e,r=k=="textarea"&&E.defaultValue!=null?null:r&&Tn.call(d.childNodes),!l&&r)for(y={},u=0;u<e.attributes.length;u++)y[(h=e.attributes[u]).name]=h.value;for(u in y)h=y[u],u=="dangerouslySetInnerHTML"?f=h:u=="children"||u in E||u=="value"&&"defaultValue"in E||u=="checked"&&"defaultChecked"in E||jt(e,u,null,h,o);for(u in E)h=E[u],u=="children"?c=h:u=="dangerouslySetInnerHTML"?m=h:u=="value"?v=h:u=="checked"?$=h:l&&typeof h!="function"||y[u]===h||jt(e,u,h,y[u],o);m?(l||f&&(m.__html==f.__html||m.__html==e.innerHTML)||(e.innerHTML=m.__html),t.__k=[]):(f&&(e.textContent=""),(k=="foreignObject"||o=="http://www.w3.org/1998/Math/MathML"&&pi.test(k))&&(o="http://www.w3.org/1999/xhtml"),Rs(d,Cn(c)?c:[c],t,n,s,o,r,i,r?r[0]:n.__k&&Oe(n,0),l,p),r&&r.some(Fe)),l&&k!="textarea"||(u="value",k=="progress"&&v==null?e.removeAttribute(u):v==null||v===e[u]&&(k!="progress"||v)||jt(e,u,v,y[u],o),u="checked",$!=null&&$!=e[u]&&jt(e,u,$,y[u],o))}else y===E||l&&e.data==E||(e.data=E);return e}function En(e,t,n,s){try{typeof e=="function"?t?t.__x=e(t)||1:s&&(s=s.__c||s.__e)&&(t=s.__x)&&(s.__x=null,typeof t=="function"?t():e(null)):e.current=t}catch(o){O.__e(o,n)}}function On(e,t,n){var s,o,r,i;if(O.unmount&&O.unmount(e),!(s=e.ref)||s.current&&s.current!=e.__e||En(s,null,t,e),s=e.__c){if(s.componentWillUnmount)try{s.componentWillUnmount()}catch(l){O.__e(l,t)}s.__P=s.__n=null}if(s=e.__k)for(i=0;i<s.length;i++)s[i]&&On(s[i],t,typeof e.type!="function"||n&&!e.props.__P);!n&&(s=e.__c)&&(s=s.__z)&&(o=Lt(s,r=[]))&&(s==e.__e&&r.some(Fe),Fe(o),Fe(s)),n||Fe(e.__e),e.__e=e.__c=e.__=null}function _i(e,t,n){return this.constructor(e,n)}function jn(e,t){var n,s,o,r;O.__&&O.__(e,t),t.nodeType==9&&(t=t.documentElement),s=(n=e&&32&e.__u)?null:t.__k,t.__k=pt(je,{children:[e]}),o=[],r=[],Mn(t,t.__k,s||Rt,Rt,t.namespaceURI,s?null:t.firstChild?Tn.call(t.childNodes):null,o,s?s.__e:t.firstChild,n,r),Is(o,t.__k,r),t.__k.props.children=null}O={__e:function(e,t,n,s){for(var o,r,i;t=t.__;)if((o=t.__c)&&!(1&o.__g)){o.__g|=4;try{if((i=(r=o.constructor)&&r.getDerivedStateFromError)&&o.setState(r.getDerivedStateFromError(e)),o.componentDidCatch&&(o.componentDidCatch(e,s||{}),i=1),i&&8&o.__g)return void(o.__g|=2)}catch(l){e=l}}throw Pt=0,e}},Os=0,Sn=function(e){return e!=null&&e.constructor===dt},ue.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=De({},this.state)),typeof e=="function"&&(e=e(De({},n),this.props)),e&&(De(n,e),this.__v&&(t&&this.__k.push(t),Ms(this)))},ue.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),Ms(this))},ue.prototype.render=je,Ee=[],Pt=0,js=function(e,t){return e.__v.__b-t.__v.__b},Nt=Symbol(),Ns=/(PointerCapture)$|Capture$/i,An=0,xn={},ui=0;var Ve,W,Nn,Bs,Ln=Object.is,It=0,Js=[],Pn=[],B=O,Us=B.__b,Hs=B.__r,Ws=B.diffed,qs=B.__c,Ks=B.unmount,Vs=B.__;function Bt(e,t){B.__h&&B.__h(W,e,It||t),It=0;var n=W.__H||(W.__H={__:[],__h:[]});return e>=n.__.length&&n.__.push({}),n.__[e]}function j(e){return It=1,vi(Zs,e)}function vi(e,t,n){var s=Bt(Ve++,2);if(s.t=e,!s.__c&&(s.__=[n?n(t):Zs(void 0,t),function(r){var i=(s.__N||s.__)[0],l=s.t(i,r);Ln(i,l)||(s.__N=[l,s.__[1]],s.__c.setState({}))}],s.__c=W,!W.__f)){W.__f=!0;var o=W.shouldComponentUpdate;W.shouldComponentUpdate=function(r,i,l){var p=this.__H;if(!p)return!0;var d=!1,u=this.props!=r;if(p.__.some(function(f){f.__N&&(d=!0,Ln(f.__[0],f.__N[0])||(u=!0))}),o){var m=o.call(this,r,i,l);return d?m||u:m}return!d||u}}return s.__}function N(e,t){var n=Bt(Ve++,3);!B.__s&&Fn(n.__H,t)&&(n.__P=!0,n.__=e,n.u=t,W.__H.__h.push(n))}function mt(e,t){var n=Bt(Ve++,4);!B.__s&&Fn(n.__H,t)&&(n.__P=!1,n.__=e,n.u=t,W.__h.push(n))}function q(e){return It=5,C(function(){return{current:e}},[])}function C(e,t){var n=Bt(Ve++,7);return Fn(n.__H,t)&&(n.__=e(),n.__H=t),n.__}function gi(){var e;do{for(;e=Pn.shift();)try{ft(e)}catch(n){B.__e(n,{__:(e=e.__P)&&e.__v})}for(;e=Js.shift();){var t=e.__H;if(e.__P&&t)try{t.__h.some(ft),t.__h.some(Rn),t.__h=[]}catch(n){t.__h=[],B.__e(n,e.__v)}}}while(Pn.length)}B.__b=function(e){W=null,Us&&Us(e)},B.__=function(e,t){e&&t.__k&&t.__k.__m&&(e.__m=t.__k.__m),Vs&&Vs(e,t)},B.__r=function(e){Hs&&Hs(e),Ve=0;var t=(W=e.__c).__H;t&&(Nn==W?W.__h=[]:(t.__h.some(ft),t.__h.some(Rn),Ve=0),t.__h=[],t.__.some(function(n){n.__N&&(n.__=n.__N),n.u=n.__N=void 0})),Nn=W},B.diffed=function(e){Ws&&Ws(e);var t=e.__c;t&&t.__H&&(t.__H.__h.length&&zs(Js.push(t)),t.__H.__.some(function(n){n.u&&(n.__H=n.u)})),Nn=W=null},B.__c=function(e,t){t.some(function(n){try{n.__h.some(ft),n.__h=n.__h.filter(function(s){return!s.__||Rn(s)})}catch(s){n.__h=[function(){throw s}]}}),qs&&qs(e,t)},B.unmount=function(e){Ks&&Ks(e);var t,n,s=e.__c;s&&s.__H&&(s.__H.__.some(function(o){try{if(o.__P&&o.__c){if(n===void 0){for(n=e.__;n&&(!n.__c||!n.__c.__P);)n=n.__;n=n&&n.__c}o.__P=n,zs(Pn.push(o))}else ft(o)}catch(r){t=r}}),s.__H=void 0,t&&B.__e(t,s.__v))};var Gs=typeof requestAnimationFrame=="function";function bi(e){var t,n=function(){clearTimeout(s),Gs&&cancelAnimationFrame(t),setTimeout(e)},s=setTimeout(n,35);Gs&&(t=requestAnimationFrame(n))}function zs(e){e!=1&&Bs==B.requestAnimationFrame||((Bs=B.requestAnimationFrame)||bi)(gi)}function ft(e){var t=W,n=e.__c;typeof n=="function"&&(e.__c=void 0,n()),W=t}function Rn(e){var t=W;e.__c=e.__(),W=t}function Fn(e,t){return!e||e.length!=t.length||t.some(function(n,s){return!Ln(n,e[s])})}function Zs(e,t){return typeof t=="function"?t(e):t}var yi=Symbol.for("preact-signals");function qt(){if(ge>1)ge--;else{var e,t=!1;for((function(){var o=Ht;for(Ht=void 0;o!==void 0;){var r=o.S;if(r.v===o.v)for(var i=r.t;i!==void 0;i=i.x)i.i===o.i&&(i.i=r.i);o=o.o}})();$t!==void 0;){var n=$t;for($t=void 0,Ut++;n!==void 0;){var s=n.u;if(n.u=void 0,n.f&=-3,!(8&n.f)&&Ys(n))try{n.c()}catch(o){t||(e=o,t=!0)}n=s}}if(Ut=0,ge--,t)throw e}}function In(e){if(ge>0)return e();Dn=++ki,ge++;try{return e()}finally{qt()}}var ht,P=void 0;function _t(e){var t=P,n=ht;P=void 0,ht=void 0;try{return e()}finally{P=t,ht=n}}var $t=void 0,ge=0,Ut=0,ki=0,Dn=0,Ht=void 0,Wt=0;function Xs(e){if(P!==void 0){var t=e.n;if(t===void 0||t.t!==P)return t={i:0,S:e,p:P.s,n:void 0,t:P,e:void 0,x:void 0,r:t},P.s!==void 0&&(P.s.n=t),P.s=t,e.n=t,32&P.f&&e.S(t),t;if(t.i===-1)return t.i=0,t.n!==void 0&&(t.n.p=t.p,t.p!==void 0&&(t.p.n=t.n),t.p=P.s,t.n=void 0,P.s.n=t,P.s=t),t}}function K(e,t){this.v=e,this.i=0,this.n=void 0,this.t=void 0,this.l=0,this.W=t?.watched,this.Z=t?.unwatched,this.name=t?.name}K.prototype.brand=yi;K.prototype.h=function(){return!0};K.prototype.S=function(e){var t=this,n=this.t;n!==e&&e.e===void 0&&(e.x=n,this.t=e,n!==void 0?n.e=e:_t(function(){var s;(s=t.W)==null||s.call(t)}))};K.prototype.U=function(e){var t=this;if(this.t!==void 0){var n=e.e,s=e.x;n!==void 0&&(n.x=s,e.e=void 0),s!==void 0&&(s.e=n,e.x=void 0),e===this.t&&(this.t=s,s===void 0&&_t(function(){var o;(o=t.Z)==null||o.call(t)}))}};K.prototype.subscribe=function(e){var t=this;return ie(function(){var n=t.value;_t(function(){return e(n)})},{name:"sub"})};K.prototype.valueOf=function(){return this.value};K.prototype.toString=function(){return this.value+""};K.prototype.toJSON=function(){return this.value};K.prototype.peek=function(){var e=this;return _t(function(){return e.value})};Object.defineProperty(K.prototype,"value",{get:function(){var e=Xs(this);return e!==void 0&&(e.i=this.i),this.v},set:function(e){if(e!==this.v){if(Ut>100)throw new Error("Cycle detected");(function(n){ge!==0&&Ut===0&&n.l!==Dn&&(n.l=Dn,Ht={S:n,v:n.v,i:n.i,o:Ht})})(this),this.v=e,this.i++,Wt++,ge++;try{for(var t=this.t;t!==void 0;t=t.x)t.t.N()}finally{qt()}}}});function S(e,t){return new K(e,t)}function Ys(e){for(var t=e.s;t!==void 0;t=t.n)if(t.S.i!==t.i||!t.S.h()||t.S.i!==t.i)return!0;return!1}function Qs(e){for(var t=e.s;t!==void 0;t=t.n){var n=t.S.n;if(n!==void 0&&(t.r=n),t.S.n=t,t.i=-1,t.n===void 0){e.s=t;break}}}function eo(e){for(var t=e.s,n=void 0;t!==void 0;){var s=t.p;t.i===-1?(t.S.U(t),s!==void 0&&(s.n=t.n),t.n!==void 0&&(t.n.p=s)):n=t,t.S.n=t.r,t.r!==void 0&&(t.r=void 0),t=s}e.s=n}function Ie(e,t){K.call(this,void 0,t),this.x=e,this.s=void 0,this.g=Wt-1,this.f=4}Ie.prototype=new K;Ie.prototype.h=function(){if(this.f&=-3,1&this.f)return!1;if((36&this.f)==32||(this.f&=-5,this.g===Wt))return!0;if(this.g=Wt,this.f|=1,this.i>0&&!Ys(this))return this.f&=-2,!0;var e=P;try{Qs(this),P=this;var t=this.x();(16&this.f||this.v!==t||this.i===0)&&(this.v=t,this.f&=-17,this.i++)}catch(n){this.v=n,this.f|=16,this.i++}return P=e,eo(this),this.f&=-2,!0};Ie.prototype.S=function(e){if(this.t===void 0){this.f|=36;for(var t=this.s;t!==void 0;t=t.n)t.S.S(t)}K.prototype.S.call(this,e)};Ie.prototype.U=function(e){if(this.t!==void 0&&(K.prototype.U.call(this,e),this.t===void 0)){this.f&=-33;for(var t=this.s;t!==void 0;t=t.n)t.S.U(t)}};Ie.prototype.N=function(){if(!(2&this.f)){this.f|=6;for(var e=this.t;e!==void 0;e=e.x)e.t.N()}};Object.defineProperty(Ie.prototype,"value",{get:function(){if(1&this.f)throw new Error("Cycle detected");var e=Xs(this);if(this.h(),e!==void 0&&(e.i=this.i),16&this.f)throw this.v;return this.v}});function Ne(e,t){return new Ie(e,t)}function to(e){var t=e.j;if(e.j=void 0,typeof t=="function"){ge++;var n=P;P=void 0;try{t()}catch(s){throw e.f&=-2,e.f|=8,Bn(e),s}finally{P=n,qt()}}}function Bn(e){for(var t=e.s;t!==void 0;t=t.n)t.S.U(t);e.x=void 0,e.s=void 0,to(e)}function wi(e){if(P!==this)throw new Error("Out-of-order effect");eo(this),P=e,this.f&=-2;try{8&this.f&&Bn(this)}finally{qt()}}function Ge(e,t){this.x=e,this.j=void 0,this.s=void 0,this.u=void 0,this.f=32,this.name=t?.name,ht&&ht.push(this)}Ge.prototype.c=function(){var e=this.S();try{if(8&this.f||this.x===void 0)return;var t=this.x();typeof t=="function"&&(this.j=t)}finally{e()}};Ge.prototype.S=function(){if(1&this.f)throw new Error("Cycle detected");this.f|=1,this.f&=-9,to(this),Qs(this),ge++;var e=P;return P=this,wi.bind(this,e)};Ge.prototype.N=function(){2&this.f||(this.f|=2,this.u=$t,$t=this)};Ge.prototype.d=function(){this.f|=8,1&this.f||Bn(this)};Ge.prototype.dispose=function(){this.d()};function ie(e,t){var n=new Ge(e,t);try{n.c()}catch(o){throw n.d(),o}var s=n.d.bind(n);return s[Symbol.dispose]=s,s}var no,Vt,Kt,xi=typeof window<"u"&&!!window.__PREACT_SIGNALS_DEVTOOLS__;var so=[];ie(function(){no=this.N})();function ze(e,t){O[e]=t.bind(null,O[e]||function(){})}function vt(e){if(Kt){var t=Kt;Kt=void 0,t()}Kt=e&&e.S()}function oo(e){var t=this,n=e.data,s=ro(n);s.name="ReactiveDom",s.value=n;var o=C(function(){for(var l=t,p=t.__v;p=p.__;)if(p.__c){p.__c.__$f|=4;break}var d=Ne(function(){var c=s.value.value;return c===0?0:c===!0?"":c||""}),u=Ne(function(){return!Array.isArray(d.value)&&!Sn(d.value)}),m=ie(function(){if(this.N=io,u.value){var c=d.value;l.__v&&l.__v.__e&&l.__v.__e.nodeType===3&&(l.__v.__e.data=c)}}),f=t.__$u.d;return t.__$u.d=function(){m(),f.call(this)},[u,d]},[]),r=o[0],i=o[1];return r.value?i.peek():i.value}oo.displayName="ReactiveTextNode";Object.defineProperties(K.prototype,{constructor:{configurable:!0,value:Dt(je,null).constructor},type:{configurable:!0,value:oo},props:{configurable:!0,get:function(){var e=this;return{data:{get value(){return e.value}}}}},__b:{configurable:!0,value:1}});ze("__b",function(e,t){if(vt(),Vt=void 0,typeof t.type=="string"){var n,s=t.props;for(var o in s)if(o!=="children"){var r=s[o];r instanceof K&&(n||(t.__np=n={}),n[o]=r,s[o]=r.peek())}}e(t)});ze("__r",function(e,t){if(e(t),t.type!==je){vt();var n,s=t.__c;s&&(s.__$f&=-2,(n=s.__$u)===void 0&&(s.__$u=n=(function(o,r){var i;return ie(function(){i=this},{name:r}),i.c=o,i})((function(o){return function(){var r;xi&&((r=this.y)==null||r.call(this)),o.__$f|=1,o.setState({})}})(s),typeof t.type=="function"?t.type.displayName||t.type.name:""))),Vt=s,vt(n)}});ze("__e",function(e,t,n,s){vt(),Vt=void 0,e(t,n,s)});ze("diffed",function(e,t){vt(),Vt=void 0;var n;if(typeof t.type=="string"&&(n=t.__e)){var s=t.__np,o=t.props,r=n.U;if(r)for(var i in r){var l=r[i];l===void 0||s&&i in s||(l.d(),r[i]=void 0)}if(s){r||(r={},n.U=r);for(var p in s){var d=r[p],u=s[p];d===void 0?(d=Si(n,p,u,o),r[p]=d):d.o(u,o)}}}e(t)});function Si(e,t,n,s){var o=t in e&&e.ownerSVGElement===void 0,r=S(n);return{o:function(i,l){r.value=i,s=l},d:ie(function(){this.N=io;var i=r.value.value;s[t]!==i&&(s[t]=i,o?e[t]=i:i!=null&&(i!==!1||t[4]==="-")?e.setAttribute(t,i):e.removeAttribute(t))})}}ze("unmount",function(e,t){if(typeof t.type=="string"){var n=t.__e;if(n){var s=n.U;if(s){n.U=void 0;for(var o in s){var r=s[o];r&&r.d()}}}var i=t.__np;if(i){var l=t.props;for(var p in i)l[p]=i[p]}t.__np=void 0}else{var d=t.__c;if(d){d.__$f|=8;var u=d.__$u;u&&(d.__$u=void 0,u.d())}}e(t)});ze("__h",function(e,t,n,s){s<3&&(t.__$f|=2),e(t,n,s)});ue.prototype.shouldComponentUpdate=function(e,t){if(this.__R)return!0;var n=this.__$u,s=n&&n.s!==void 0;for(var o in t)return!0;if(this.__f||typeof this.u=="boolean"&&this.u===!0){var r=2&this.__$f;if(!(s||r||4&this.__$f)||1&this.__$f)return!0}else if(!(s||4&this.__$f)||3&this.__$f)return!0;for(var i in e)if(i!=="__source"&&e[i]!==this.props[i])return!0;for(var l in this.props)if(!(l in e))return!0;return!1};function ro(e,t){return C(function(){return S(e,t)},[])}var Ai=function(e){queueMicrotask(function(){queueMicrotask(e)})};function Ci(){In(function(){for(var e;e=so.shift();)no.call(e)})}function io(){so.push(this)===1&&(O.requestAnimationFrame||Ai)(Ci)}var Gt=I.now-performance.now()/1e3;function w(){return Gt+performance.now()/1e3}function ao(e){if(typeof e!="number")return;let t=e-performance.now()/1e3;(t>Gt||Gt-t>60)&&(Gt=t)}var be=S(0),zt=S(0);setInterval(()=>{document.hidden||(be.value+=1,be.value%60===0&&(zt.value+=1))},1e3);document.addEventListener("visibilitychange",()=>{document.hidden||(be.value+=1,zt.value+=1)});var Ti=new Set(["current","Ready","Running","Completed","Succeeded","Active","Bound"]),Mi=new Set(["in progress","terminating","Terminating","Pending","ContainerCreating","PodInitializing","Ready,SchedulingDisabled","other","waiting"]),gt=["deployments","statefulsets","daemonsets","jobs","cronjobs"],Ei=[...gt,"nodes","pods","namespaces"];function Je(e){return Ti.has(e)?"ok":Mi.has(e)||/^Init:\d+\/\d+$/.test(e)?"progress":"bad"}function Be({health:e,state:t}){return!e||e==="current"?Je(e||t||""):[Je(e),Je(t||e)].includes("bad")?"bad":"progress"}function Ze(e,t){let n={ok:0,progress:0,bad:0,total:0},s=!1;for(let o of t){let r=e?.[o];if(r){s=!0,n.total+=r.total;for(let[i,l]of Object.entries(r.states??{}))n[Je(i)]+=l}}return s?n:null}function lo(e){let t=Ze(e,Ei);return t&&t.bad+t.progress}function bt(e,t){let n=t;try{let o=localStorage.getItem(`kas-${e}`);o!==null&&(n=JSON.parse(o))}catch{}(Array.isArray(t)!==Array.isArray(n)||typeof n!=typeof t)&&(n=t);let s=S(n);return ie(()=>{let o=JSON.stringify(s.value);try{localStorage.setItem(`kas-${e}`,o)}catch{}}),s}var Ue=S(document.documentElement.dataset.theme||"system");ie(()=>{document.documentElement.dataset.theme=Ue.value,document.cookie=`kas-theme=${Ue.value}; Path=/; SameSite=Lax; Secure; Max-Age=31536000`});var ye=bt("density","comfortable");ie(()=>{document.documentElement.dataset.density=ye.value});var pe=bt("zone",""),de=bt("shortcuts",!0),Le=bt("pinned",[]),he=bt("recent",[]);function co(e){he.peek()[0]!==e&&(he.value=[e,...he.peek().filter(t=>t!==e)].slice(0,8))}function uo(e){let t=Le.peek();Le.value=t.includes(e)?t.filter(n=>n!==e):[...t,e]}var Zt={logger:typeof console<"u"?console:void 0,WebSocket:typeof WebSocket<"u"?WebSocket:void 0},D={log(...e){this.enabled&&(e.push(Date.now()),Zt.logger.log("[ActionCable]",...e))}},kt=()=>new Date().getTime(),Jt=e=>(kt()-e)/1e3,wt=class{constructor(t){this.visibilityDidChange=this.visibilityDidChange.bind(this),this.connection=t,this.reconnectAttempts=0}start(){this.isRunning()||(this.startedAt=kt(),delete this.stoppedAt,this.startPolling(),addEventListener("visibilitychange",this.visibilityDidChange),D.log(`ConnectionMonitor started. stale threshold = ${this.constructor.staleThreshold} s`))}stop(){this.isRunning()&&(this.stoppedAt=kt(),this.stopPolling(),removeEventListener("visibilitychange",this.visibilityDidChange),D.log("ConnectionMonitor stopped"))}isRunning(){return this.startedAt&&!this.stoppedAt}recordMessage(){this.pingedAt=kt()}recordConnect(){this.reconnectAttempts=0,delete this.disconnectedAt,D.log("ConnectionMonitor recorded connect")}recordDisconnect(){this.disconnectedAt=kt(),D.log("ConnectionMonitor recorded disconnect")}startPolling(){this.stopPolling(),this.poll()}stopPolling(){clearTimeout(this.pollTimeout)}poll(){this.pollTimeout=setTimeout((()=>{this.reconnectIfStale(),this.poll()}),this.getPollInterval())}getPollInterval(){let{staleThreshold:t,reconnectionBackoffRate:n}=this.constructor,s=Math.pow(1+n,Math.min(this.reconnectAttempts,10)),r=(this.reconnectAttempts===0?1:n)*Math.random();return t*1e3*s*(1+r)}reconnectIfStale(){this.connectionIsStale()&&(D.log(`ConnectionMonitor detected stale connection. reconnectAttempts = ${this.reconnectAttempts}, time stale = ${Jt(this.refreshedAt)} s, stale threshold = ${this.constructor.staleThreshold} s`),this.reconnectAttempts++,this.disconnectedRecently()?D.log(`ConnectionMonitor skipping reopening recent disconnect. time disconnected = ${Jt(this.disconnectedAt)} s`):(D.log("ConnectionMonitor reopening"),this.connection.reopen()))}get refreshedAt(){return this.pingedAt?this.pingedAt:this.startedAt}connectionIsStale(){return Jt(this.refreshedAt)>this.constructor.staleThreshold}disconnectedRecently(){return this.disconnectedAt&&Jt(this.disconnectedAt)<this.constructor.staleThreshold}visibilityDidChange(){document.visibilityState==="visible"&&setTimeout((()=>{(this.connectionIsStale()||!this.connection.isOpen())&&(D.log(`ConnectionMonitor reopening stale connection on visibilitychange. visibilityState = ${document.visibilityState}`),this.connection.reopen())}),200)}};wt.staleThreshold=6;wt.reconnectionBackoffRate=.15;var fo={message_types:{welcome:"welcome",disconnect:"disconnect",ping:"ping",confirmation:"confirm_subscription",rejection:"reject_subscription"},disconnect_reasons:{unauthorized:"unauthorized",invalid_request:"invalid_request",server_restart:"server_restart",remote:"remote"},default_mount_path:"/cable",protocols:["actioncable-v1-json","actioncable-unsupported"]},{message_types:yt,protocols:Un}=fo,Oi=Un.slice(0,Un.length-1),po=[].indexOf,xt=class{constructor(t){this.open=this.open.bind(this),this.consumer=t,this.subscriptions=this.consumer.subscriptions,this.monitor=new wt(this),this.disconnected=!0}send(t){return this.isOpen()?(this.webSocket.send(JSON.stringify(t)),!0):!1}open(){if(this.isActive())return D.log(`Attempted to open WebSocket, but existing socket is ${this.getState()}`),!1;{let t=[...Un,...this.consumer.subprotocols||[]];return D.log(`Opening WebSocket, current state is ${this.getState()}, subprotocols: ${t}`),this.webSocket&&this.uninstallEventHandlers(),this.webSocket=new Zt.WebSocket(this.consumer.url,t),this.installEventHandlers(),this.monitor.start(),!0}}close({allowReconnect:t}={allowReconnect:!0}){if(t||this.monitor.stop(),this.isOpen())return this.webSocket.close()}reopen(){if(D.log(`Reopening WebSocket, current state is ${this.getState()}`),this.isActive())try{return this.close()}catch(t){D.log("Failed to reopen WebSocket",t)}finally{D.log(`Reopening WebSocket in ${this.constructor.reopenDelay}ms`),setTimeout(this.open,this.constructor.reopenDelay)}else return this.open()}getProtocol(){if(this.webSocket)return this.webSocket.protocol}isOpen(){return this.isState("open")}isActive(){return this.isState("open","connecting")}triedToReconnect(){return this.monitor.reconnectAttempts>0}isProtocolSupported(){return po.call(Oi,this.getProtocol())>=0}isState(...t){return po.call(t,this.getState())>=0}getState(){if(this.webSocket){for(let t in Zt.WebSocket)if(Zt.WebSocket[t]===this.webSocket.readyState)return t.toLowerCase()}return null}installEventHandlers(){for(let t in this.events){let n=this.events[t].bind(this);this.webSocket[`on${t}`]=n}}uninstallEventHandlers(){for(let t in this.events)this.webSocket[`on${t}`]=function(){}}};xt.reopenDelay=500;xt.prototype.events={message(e){if(!this.isProtocolSupported())return;let{identifier:t,message:n,reason:s,reconnect:o,type:r}=JSON.parse(e.data);switch(this.monitor.recordMessage(),r){case yt.welcome:return this.triedToReconnect()&&(this.reconnectAttempted=!0),this.monitor.recordConnect(),this.subscriptions.reload();case yt.disconnect:return D.log(`Disconnecting. Reason: ${s}`),this.close({allowReconnect:o});case yt.ping:return null;case yt.confirmation:return this.subscriptions.confirmSubscription(t),this.reconnectAttempted?(this.reconnectAttempted=!1,this.subscriptions.notify(t,"connected",{reconnected:!0})):this.subscriptions.notify(t,"connected",{reconnected:!1});case yt.rejection:return this.subscriptions.reject(t);default:return this.subscriptions.notify(t,"received",n)}},open(){if(D.log(`WebSocket onopen event, using '${this.getProtocol()}' subprotocol`),this.disconnected=!1,!this.isProtocolSupported())return D.log("Protocol is unsupported. Stopping monitor and disconnecting."),this.close({allowReconnect:!1})},close(e){if(D.log("WebSocket onclose event"),!this.disconnected)return this.disconnected=!0,this.monitor.recordDisconnect(),this.subscriptions.notifyAll("disconnected",{willAttemptReconnect:this.monitor.isRunning()})},error(){D.log("WebSocket onerror event")}};var ji=function(e,t){if(t!=null)for(let n in t){let s=t[n];e[n]=s}return e},Hn=class{constructor(t,n={},s){this.consumer=t,this.identifier=JSON.stringify(n),ji(this,s)}perform(t,n={}){return n.action=t,this.send(n)}send(t){return this.consumer.send({command:"message",identifier:this.identifier,data:JSON.stringify(t)})}unsubscribe(){return this.consumer.subscriptions.remove(this)}},Wn=class{constructor(t){this.subscriptions=t,this.pendingSubscriptions=[]}guarantee(t){this.pendingSubscriptions.indexOf(t)==-1?(D.log(`SubscriptionGuarantor guaranteeing ${t.identifier}`),this.pendingSubscriptions.push(t)):D.log(`SubscriptionGuarantor already guaranteeing ${t.identifier}`),this.startGuaranteeing()}forget(t){D.log(`SubscriptionGuarantor forgetting ${t.identifier}`),this.pendingSubscriptions=this.pendingSubscriptions.filter((n=>n!==t))}startGuaranteeing(){this.stopGuaranteeing(),this.retrySubscribing()}stopGuaranteeing(){clearTimeout(this.retryTimeout)}retrySubscribing(){this.retryTimeout=setTimeout((()=>{this.subscriptions&&typeof this.subscriptions.subscribe=="function"&&this.pendingSubscriptions.map((t=>{D.log(`SubscriptionGuarantor resubscribing ${t.identifier}`),this.subscriptions.subscribe(t)}))}),500)}},qn=class{constructor(t){this.consumer=t,this.guarantor=new Wn(this),this.subscriptions=[]}create(t,n){let s=t,o=typeof s=="object"?s:{channel:s},r=new Hn(this.consumer,o,n);return this.add(r)}add(t){return this.subscriptions.push(t),this.consumer.ensureActiveConnection(),this.notify(t,"initialized"),this.subscribe(t),t}remove(t){return this.forget(t),this.findAll(t.identifier).length||this.sendCommand(t,"unsubscribe"),t}reject(t){return this.findAll(t).map((n=>(this.forget(n),this.notify(n,"rejected"),n)))}forget(t){return this.guarantor.forget(t),this.subscriptions=this.subscriptions.filter((n=>n!==t)),t}findAll(t){return this.subscriptions.filter((n=>n.identifier===t))}reload(){return this.subscriptions.map((t=>this.subscribe(t)))}notifyAll(t,...n){return this.subscriptions.map((s=>this.notify(s,t,...n)))}notify(t,n,...s){let o;return typeof t=="string"?o=this.findAll(t):o=[t],o.map((r=>typeof r[n]=="function"?r[n](...s):void 0))}subscribe(t){this.sendCommand(t,"subscribe")&&this.guarantor.guarantee(t)}confirmSubscription(t){D.log(`Subscription confirmed ${t}`),this.findAll(t).map((n=>this.guarantor.forget(n)))}sendCommand(t,n){let{identifier:s}=t;return this.consumer.send({command:n,identifier:s})}},Kn=class{constructor(t){this._url=t,this.subscriptions=new qn(this),this.connection=new xt(this),this.subprotocols=[]}get url(){return Ni(this._url)}send(t){return this.connection.send(t)}connect(){return this.connection.open()}disconnect(){return this.connection.close({allowReconnect:!1})}ensureActiveConnection(){if(!this.connection.isActive())return this.connection.open()}addSubProtocol(t){this.subprotocols=[...this.subprotocols,t]}};function Ni(e){if(typeof e=="function"&&(e=e()),e&&!/^wss?:/i.test(e)){let t=document.createElement("a");return t.href=e,t.href=t.href,t.protocol=t.protocol.replace("http","ws"),t.href}else return e}function mo(e=Li("url")||fo.default_mount_path){return new Kn(e)}function Li(e){let t=document.head.querySelector(`meta[name='action-cable-${e}']`);if(t)return t.getAttribute("content")}function ho(e,t,n){if(n.snapshot){let i=new Map;for(let[l,p]of Object.entries(n.snapshot)){let d=e.get(l);i.set(l,d!==void 0&&Pi(d,p)?d:p)}return t.epoch=n.e,t.sequence=n.s??0,{rows:i,isGap:!1}}let s=n.s??0,o=n.e===t.epoch,r=!o||s>t.sequence+1;if(o&&s>=t.sequence){for(let[i,l]of Object.entries(n.put??{}))e.set(i,l);for(let i of n.delete??[])e.delete(i);t.sequence=s}return{rows:e,isGap:r}}function Pi(e,t){return e===t||JSON.stringify(e)===JSON.stringify(t)}var _o=function(e,t,n,s){var o;t[0]=0;for(var r=1;r<t.length;r++){var i=t[r++],l=t[r]?(t[0]|=i?1:2,n[t[r++]]):t[++r];i===3?s[0]=l:i===4?s[1]=Object.assign(s[1]||{},l):i===5?(s[1]=s[1]||{})[t[++r]]=l:i===6?s[1][t[++r]]+=l+"":i?(o=e.apply(l,_o(e,l,n,["",null])),s.push(o),l[0]?t[0]|=2:(t[r-2]=0,t[r]=o)):s.push(l)}return s},$o=new Map;function vo(e){var t=$o.get(this);return t||(t=new Map,$o.set(this,t)),(t=_o(this,t.get(e)||(t.set(e,t=(function(n){for(var s,o,r=1,i="",l="",p=[0],d=function(f){r===1&&(f||(i=i.replace(/^\s*\n\s*|\s*\n\s*$/g,"")))?p.push(0,f,i):r===3&&(f||i)?(p.push(3,f,i),r=2):r===2&&i==="..."&&f?p.push(4,f,0):r===2&&i&&!f?p.push(5,0,!0,i):r>=5&&((i||!f&&r===5)&&(p.push(r,0,i,o),r=6),f&&(p.push(r,f,0,o),r=6)),i=""},u=0;u<n.length;u++){u&&(r===1&&d(),d(u));for(var m=0;m<n[u].length;m++)s=n[u][m],r===1?s==="<"?(d(),p=[p],r=3):i+=s:r===4?i==="--"&&s===">"?(r=1,i=""):i=s+i[0]:l?s===l?l="":i+=s:s==='"'||s==="'"?l=s:s===">"?(d(),r=1):r&&(s==="="?(r=5,o=i,i=""):s==="/"&&(r<5||n[u][m+1]===">")?(d(),r===3&&(p=p[0]),r=p,(p=p[0]).push(2,0,r),r=0):s===" "||s==="	"||s===`
`||s==="\r"?(d(),r=2):i+=s),r===3&&i==="!--"&&(r=4,p=p[0])}return d(),p})(e)),t),arguments,[])).length>1?t:t[0]}var a=vo.bind(Dt);function ke(...e){return e.filter(Boolean).join(" ")}var we=S(!1);function bo(){return`/ui/sign-in?next=${encodeURIComponent(location.pathname+location.search)}`}var Ri=3e5,go=performance.now();for(let e of["pointerdown","keydown"])document.addEventListener(e,()=>{we.peek()||performance.now()-go<Ri||(go=performance.now(),fetch("/ui/api/session",{credentials:"same-origin"}).then(t=>{t.status===401&&(we.value=!0)},()=>{}))},{capture:!0,passive:!0});async function Xt(){try{await fetch("/ui/sign-out",{method:"POST",headers:{"X-Kas-Csrf":I.csrf},credentials:"same-origin"})}finally{location.assign("/ui/sign-in")}}var Yt=class extends Error{constructor(t,n){super(n),this.status=t}};async function Y(e,t={},n){let s=new URLSearchParams(t).toString(),o;try{o=await fetch(s?`${e}?${s}`:e,{headers:{Accept:"application/json"},credentials:"same-origin",signal:n??null})}catch(i){throw n?.aborted?i:new Yt(0,"kas did not respond")}let r;try{r=await o.json()}catch{r={}}if(o.status===401&&(we.value=!0),!o.ok)throw new Yt(o.status,r.message||`kas responded with ${o.status}`);return ao(r.asOf),r}async function Vn(e,t,n){let s=[],o="",r;do r=await Y(e,{...t,limit:"5000",...o?{continue:o}:{}},n),s.push(...r.items),o=r.continue;while(o&&s.length<Fi);return{items:s,incomplete:r.clusters.incomplete,missingKas:r.missingKas,asOf:r.asOf,isCut:!!o}}var Fi=2e4;var Di=250,Ii=2e4,Bi=12e4,yo=[15e3,24e4],xe=S({state:"connecting",since:w()}),At=S(0),Gn=new URL("/-/cable",location.href);Gn.protocol=Gn.protocol.replace("http","ws");var St=mo(Gn.href);function en(e){xe.peek().state!==e&&(xe.value={state:e,since:w()})}var zn=class{constructor(t,n){this.key=t,this.params=n,this.rows=new Map,this.version=S(0),this.state=S("loading"),this.reason=S(""),this.status=S(0),this.since=S(w()),this.retryAt=S(0),this.readers=0,this._position={epoch:null,sequence:0},this._subscription=null,this._redraw=0,this._drawn=0,this._retry=0,this._refusals=0}open(){let t=crypto.getRandomValues(new Uint32Array(1))[0].toString(36);this._subscription=St.subscriptions.create({...this.params,tab:t},{connected:({reconnected:n})=>this._connected(n),disconnected:({willAttemptReconnect:n})=>Ui(n),rejected:()=>this._rejected(),received:n=>this._received(n)})}close(){clearTimeout(this._redraw),clearTimeout(this._retry),this._subscription?.unsubscribe(),this._subscription=null}retry(){this.close(),this.rows.size||(this.state.value="loading"),this.since.value=w(),this._position={epoch:null,sequence:0},this.open()}_connected(t){en("open");let{epoch:n,sequence:s}=this._position;t&&n!==null&&this._subscription?.perform("resume",{e:n,s})}_rejected(){en("open"),this._subscription=null,this.state.value="refused",this.since.value=w();let t=Math.min(yo[0]*2**this._refusals,yo[1]);this._refusals+=1,this.retryAt.value=w()+t/1e3,this._retry=setTimeout(()=>this.retry(),t);let n=this.params.clusters??[this.params.cluster];Y("/api/v1/clusters",{clusters:n.join(",")}).then(s=>{let o=s.clusters.find(r=>r.state==="denied");this.status.value=o?403:503,this.reason.value=o?.reason??"kas has too much work for this user at the moment"},s=>{this.status.value=s.status,this.reason.value=s.message})}_received(t){let{rows:n,isGap:s}=ho(this.rows,this._position,t);this.rows=n,At.value=w(),this._refusals=0,s&&this.retry(),t.snapshot||this.state.peek()!=="live"?(this.state.value="live",this._draw()):this._redraw||(this._redraw=setTimeout(()=>this._draw(),Math.max(0,this._drawn+Di-performance.now())))}_draw(){clearTimeout(this._redraw),this._redraw=0,this._drawn=performance.now(),this.version.value+=1}};function Ui(e){en("lost"),!(e||Qt)&&Y("/ui/api/agents").then(()=>setTimeout(()=>St.connect(),5e3),()=>{we.peek()||setTimeout(()=>St.connect(),15e3)})}var Qt=!1,ko=0;document.addEventListener("visibilitychange",()=>{clearTimeout(ko),document.hidden?ko=setTimeout(()=>{Qt=!0,St.disconnect()},Bi):Qt&&(Qt=!1,en("connecting"),St.connect())});var tn=new Map;function wo(e){let t=JSON.stringify(e),n=tn.get(t);return n||(n=new zn(t,e),tn.set(t,n),n.open()),n}function Jn(e){e.readers-=1,setTimeout(()=>{e.readers||tn.get(e.key)!==e||(tn.delete(e.key),e.close())},Ii)}function Se(e){let t=JSON.stringify(e),n=C(()=>wo(e),[t]);return N(()=>(n.readers+=1,()=>Jn(n)),[n]),n}function xo(e){let t=wo(e);return t.readers+=1,t}var $e=S({list:[],isComplete:!0,reason:"",isLoaded:!1,error:null,since:w()});async function Ct(){try{let e=await Y("/ui/api/agents");$e.value={list:e.agents,isComplete:e.complete,reason:e.reason??"",isLoaded:!0,error:null,since:w()}}catch(e){$e.value={...$e.peek(),error:e,since:w()}}}var Hi=6e4;setInterval(()=>{document.hidden||Ct()},Hi);var Xe={names:"",feed:null};function fe(){let e=[...He()].sort(),t=e.join(",");return(!Xe.feed||Xe.names!==t)&&(Xe.feed&&Jn(Xe.feed),Xe={names:t,feed:xo({channel:"FleetChannel",clusters:e})}),Xe.feed}var Ao=new Map,Ae=Ne(()=>{let e=fe();e.version.value;let{list:t}=$e.value,n=new Map,s=new Map(t.map(r=>[r.id,r])),o=new Map(t.map(r=>[r.name,r]));for(let[r,i]of e.rows){if(!r.startsWith("cluster/"))continue;let l=r.slice(8),p=s.get(l)??o.get(i.name);n.set(r,So(r,l,i,p))}for(let r of t){let i=`cluster/${r.id}`;if(n.has(i))continue;let l=e.state.value==="live"?"never":r.connected?"live":"offline";n.set(i,So(i,r.id,Wi[l],r))}return Ao=n,[...n.values()]}),Wi={never:{state:"never",name:""},live:{state:"live",name:""},offline:{state:"offline",name:""}};function So(e,t,n,s){let o=Ao.get(e);return o&&o.source===n&&o.agentkVersion===(s?.agentkVersion??"")&&o.kubernetesVersion===(s?.kubernetesVersion??"")&&(o.labels===s?.labels||JSON.stringify(o.labels)===JSON.stringify(s?.labels??{}))?o:{key:e,id:t,source:n,name:n.name||s?.name||t,labels:s?.labels??{},state:n.state,lastSeen:n.lastSeen||null,summary:n.summary,nodes:Ze(n.summary,["nodes"]),workloads:Ze(n.summary,gt),problems:lo(n.summary),kubernetesVersion:s?.kubernetesVersion??"",agentkVersion:s?.agentkVersion??""}}var Co=Ne(()=>new Map(Ae.value.map(e=>[e.name,e]))),nn=Ne(()=>{let e={clusters:0,live:0,late:0,offline:0,never:0,denied:0,nodes:0,brokenNodes:0,workloads:0,brokenWorkloads:0,problems:0,troubled:0,oldProblems:0};for(let t of Ae.value)e.clusters+=1,e[t.state]+=1,e.nodes+=t.nodes?.total??0,e.brokenNodes+=t.nodes?.bad??0,e.workloads+=t.workloads?.total??0,e.brokenWorkloads+=t.workloads?.bad??0,e.problems+=t.problems??0,t.problems&&(e.troubled+=1),t.state!=="live"&&(e.oldProblems+=t.problems??0);return e});function He(){return $e.value.isComplete||!he.value.length?["*"]:he.value}function Q({title:e,above:t,actions:n,children:s}){return N(()=>{document.title=`${e} · kas`},[e]),a`
<header class="heading">
${t}
<div class="heading__line"><h1 tabindex="-1">${e}</h1>${n}</div>
${s}
</header>`}var qi=1e4,To=3e4,Ki=12,Zn=class{constructor(t){this.load=t,this.state=S({data:null,error:null,since:w(),retryAt:0}),this.version=-1,this._timer=0,this._began=-1/0,this._abort=null}async reload(){clearTimeout(this._timer),this._abort?.abort();let t=new AbortController;this._abort=t,this._began=performance.now(),this.version=fe().version.peek();try{let n=await this.load(t.signal);t.signal.aborted||(this.state.value={data:n,error:null,since:w(),retryAt:0})}catch(n){if(t.signal.aborted)return;let s=w()+To/1e3;this.state.value={...this.state.peek(),error:n,since:w(),retryAt:s},this._timer=setTimeout(()=>this.reload(),To)}}refresh(){document.hidden||this.state.peek().error||this.version===fe().version.peek()||(clearTimeout(this._timer),this._timer=setTimeout(()=>this.reload(),Math.max(0,this._began+qi-performance.now())))}stop(){clearTimeout(this._timer)}},Ye=new Map;function Mo(e,t){let n=C(()=>{let s=Ye.get(e)??new Zn(t);return Ye.delete(e),Ye.set(e,s),Ye.size>Ki&&Ye.delete(Ye.keys().next().value),s},[e]);return N(()=>{let{state:s}=n;(s.peek().data===null||s.peek().error)&&n.reload();let o=fe().version.subscribe(()=>n.refresh());return()=>{o(),n.stop()}},[n]),n}var M="/ui";function Xn(){return{path:location.pathname.replace(/\/+$/,"")||M,params:new URLSearchParams(location.search)}}var L=S(Xn());function R(e,{replace:t=!1}={}){if(e===location.pathname+location.search)return;let n=L.peek().path;t?history.replaceState(history.state,"",e):(history.replaceState({scroll:scrollY},""),history.pushState(null,"",e)),L.value=Xn(),L.peek().path!==n&&Vi()}function Vi(){scrollTo(0,0),requestAnimationFrame(()=>{document.querySelector("h1")?.focus({preventScroll:!0})})}function U(e,t=L.value.path){let n=new URLSearchParams(L.value.params);for(let[s,o]of Object.entries(e))o?n.set(s,o):n.delete(s);return _e(t,n)}function _e(e,t={}){let n=new URLSearchParams(t).toString().replaceAll(/%(?:2F|2C|3D|7E|3A)/g,decodeURIComponent);return n?`${e}?${n}`:e}function T(e,t="",n={}){return _e(`${M}/clusters/${encodeURIComponent(e)}${t&&`/${t}`}`,n)}addEventListener("popstate",e=>{L.value=Xn();let t=e.state?.scroll??0;requestAnimationFrame(()=>requestAnimationFrame(()=>scrollTo(0,t)))});history.scrollRestoration="manual";document.addEventListener("click",e=>{if(e.defaultPrevented||e.button||e.metaKey||e.ctrlKey||e.shiftKey||e.altKey)return;let t=e.target instanceof Element?e.target.closest("a[href]"):null;!(t instanceof HTMLAnchorElement)||t.target||t.hasAttribute("download")||t.origin!==location.origin||!Gi(t.pathname)||(e.preventDefault(),R(t.pathname+t.search,{replace:t.dataset.replace!==void 0}))});function Gi(e){return(e===M||e.startsWith(`${M}/`))&&!/^\/ui\/(?:static\/|api\/|sign-)/.test(e)}var Eo=[["path",{d:"M12 5v14"}],["path",{d:"m19 12-7 7-7-7"}]];var Oo=[["path",{d:"m5 12 7-7 7 7"}],["path",{d:"M12 19V5"}]];var jo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M4.929 4.929 19.07 19.071"}]];var No=[["path",{d:"M10.268 21a2 2 0 0 0 3.464 0"}],["path",{d:"M3.262 15.326A1 1 0 0 0 4 17h16a1 1 0 0 0 .74-1.673C19.41 13.956 18 12.499 18 8A6 6 0 0 0 6 8c0 4.499-1.411 5.956-2.738 7.326"}]];var Lo=[["path",{d:"M2.97 12.92A2 2 0 0 0 2 14.63v3.24a2 2 0 0 0 .97 1.71l3 1.8a2 2 0 0 0 2.06 0L12 19v-5.5l-5-3-4.03 2.42Z"}],["path",{d:"m7 16.5-4.74-2.85"}],["path",{d:"m7 16.5 5-3"}],["path",{d:"M7 16.5v5.17"}],["path",{d:"M12 13.5V19l3.97 2.38a2 2 0 0 0 2.06 0l3-1.8a2 2 0 0 0 .97-1.71v-3.24a2 2 0 0 0-.97-1.71L17 10.5l-5 3Z"}],["path",{d:"m17 16.5-5-3"}],["path",{d:"m17 16.5 4.74-2.85"}],["path",{d:"M17 16.5v5.17"}],["path",{d:"M7.97 4.42A2 2 0 0 0 7 6.13v4.37l5 3 5-3V6.13a2 2 0 0 0-.97-1.71l-3-1.8a2 2 0 0 0-2.06 0l-3 1.8Z"}],["path",{d:"M12 8 7.26 5.15"}],["path",{d:"m12 8 4.74-2.85"}],["path",{d:"M12 13.5V8"}]];var Po=[["path",{d:"M20 6 9 17l-5-5"}]];var Ro=[["path",{d:"m6 9 6 6 6-6"}]];var Fo=[["circle",{cx:"12",cy:"12",r:"10"}],["line",{x1:"12",x2:"12",y1:"8",y2:"12"}],["line",{x1:"12",x2:"12.01",y1:"16",y2:"16"}]];var Do=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"m16 9-5.5 5.5L8 12"}]];var Io=[["path",{d:"M10.1 2.182a10 10 0 0 1 3.8 0"}],["path",{d:"M13.9 21.818a10 10 0 0 1-3.8 0"}],["path",{d:"M17.609 3.721a10 10 0 0 1 2.69 2.7"}],["path",{d:"M2.182 13.9a10 10 0 0 1 0-3.8"}],["path",{d:"M20.279 17.609a10 10 0 0 1-2.7 2.69"}],["path",{d:"M21.818 10.1a10 10 0 0 1 0 3.8"}],["path",{d:"M3.721 6.391a10 10 0 0 1 2.7-2.69"}],["path",{d:"M6.391 20.279a10 10 0 0 1-2.69-2.7"}]];var Bo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M9.09 9a3 3 0 0 1 5.83 1c0 2-3 3-3 3"}],["path",{d:"M12 17h.01"}]];var Uo=[["path",{d:"M17.925 20.056a6 6 0 0 0-11.851.001"}],["circle",{cx:"12",cy:"11",r:"4"}],["circle",{cx:"12",cy:"12",r:"10"}]];var Ho=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M12 6v6l4 2"}]];var Wo=[["path",{d:"M10.94 5.274A7 7 0 0 1 15.71 10h1.79a4.5 4.5 0 0 1 4.222 6.057"}],["path",{d:"M18.796 18.81A4.5 4.5 0 0 1 17.5 19H9A7 7 0 0 1 5.79 5.78"}],["path",{d:"m2 2 20 20"}]];var qo=[["rect",{width:"14",height:"14",x:"8",y:"8",rx:"2",ry:"2"}],["path",{d:"M4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2"}]];var Ko=[["path",{d:"M12 15V3"}],["path",{d:"M21 15v4a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2v-4"}],["path",{d:"m7 10 5 5 5-5"}]];var Vo=[["path",{d:"M15 3h6v6"}],["path",{d:"M10 14 21 3"}],["path",{d:"M18 13v6a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V8a2 2 0 0 1 2-2h6"}]];var Go=[["path",{d:"M12.83 2.18a2 2 0 0 0-1.66 0L2.6 6.08a1 1 0 0 0 0 1.83l8.58 3.91a2 2 0 0 0 1.66 0l8.58-3.9a1 1 0 0 0 0-1.83z"}],["path",{d:"M2 12a1 1 0 0 0 .58.91l8.6 3.91a2 2 0 0 0 1.65 0l8.58-3.9A1 1 0 0 0 22 12"}],["path",{d:"M2 17a1 1 0 0 0 .58.91l8.6 3.91a2 2 0 0 0 1.65 0l8.58-3.9A1 1 0 0 0 22 17"}]];var zo=[["path",{d:"M3 5h.01"}],["path",{d:"M3 12h.01"}],["path",{d:"M3 19h.01"}],["path",{d:"M8 5h13"}],["path",{d:"M8 12h13"}],["path",{d:"M8 19h13"}]];var Jo=[["path",{d:"M21 12a9 9 0 1 1-6.219-8.56"}]];var Zo=[["path",{d:"M12 17v5"}],["path",{d:"M9 10.76a2 2 0 0 1-1.11 1.79l-1.78.9A2 2 0 0 0 5 15.24V16a1 1 0 0 0 1 1h12a1 1 0 0 0 1-1v-.76a2 2 0 0 0-1.11-1.79l-1.78-.9A2 2 0 0 1 15 10.76V7a1 1 0 0 1 1-1 2 2 0 0 0 0-4H8a2 2 0 0 0 0 4 1 1 0 0 1 1 1z"}]];var Xo=[["path",{d:"m21 21-4.34-4.34"}],["circle",{cx:"11",cy:"11",r:"8"}]];var Yo=[["rect",{width:"20",height:"8",x:"2",y:"2",rx:"2",ry:"2"}],["rect",{width:"20",height:"8",x:"2",y:"14",rx:"2",ry:"2"}],["line",{x1:"6",x2:"6.01",y1:"6",y2:"6"}],["line",{x1:"6",x2:"6.01",y1:"18",y2:"18"}]];var Qo=[["path",{d:"M3 9h18"}],["path",{d:"M9 3v18"}],["rect",{x:"3",y:"3",width:"18",height:"18",rx:"2"}]];var er=[["path",{d:"m21.73 18-8-14a2 2 0 0 0-3.48 0l-8 14A2 2 0 0 0 4 21h16a2 2 0 0 0 1.73-3"}],["path",{d:"M12 9v4"}],["path",{d:"M12 17h.01"}]];var tr=[["path",{d:"M18 6 6 18"}],["path",{d:"m6 6 12 12"}]];var ba={arrowDown:Eo,arrowUp:Oo,ban:jo,bell:No,boxes:Lo,check:Po,chevronDown:Ro,circleAlert:Fo,circleCheck:Do,circleDashed:Io,circleHelp:Bo,circleUser:Uo,clock:Ho,cloudOff:Wo,copy:qo,download:Ko,externalLink:Vo,layers:Go,list:zo,loader:Jo,pin:Zo,search:Xo,server:Yo,table:Qo,triangleAlert:er,x:tr};function A({name:e,size:t=16,class:n=""}){return a`
<svg class=${`icon ${n}`} width=${t} height=${t} viewBox="0 0 24 24" aria-hidden="true">
${ba[e].map(([s,o])=>a`<${s} ...${o} />`)}
</svg>`}var ya={live:{icon:"circleCheck",level:"ok"},late:{icon:"clock",level:"progress"},offline:{icon:"cloudOff",level:"off"},never:{icon:"circleDashed",level:"off"},denied:{icon:"ban",level:"off"}},ka={ok:"circleCheck",progress:"loader",bad:"circleAlert"};function Tt({state:e}){let{icon:t,level:n}=ya[e]??{icon:"circleHelp",level:"off"};return a`<span class=${`badge badge--${n}`}>${A({name:t})}${e}</span>`}function ae({state:e,health:t}){let n=Be({health:t,state:e});return a`<span class=${`badge badge--${n}`}>${A({name:ka[n]})}<span>${e||t}</span></span>`}function nr(e){let t=e.length>24?e.length-10:e.length;return[e.slice(0,t),e.slice(t)]}function ee({text:e}){let[t,n]=nr(e);return a`<span class="name" title=${e}><span class="name__start">${t}</span>${n&&a`<span class="name__end">${n}</span>`}</span>`}var wa=/(?:"[^"]*"?|[^\s"])+/g,rr=/^([A-Za-z0-9_./-]+)(!=|!~|>=|<=|=|~|>|<)([\s\S]*)$/;function Mt(e){return(e.match(wa)??[]).map(xa).filter(t=>t.values.some(Boolean))}function xa(e){let t=rr.exec(e);if(t){let[,o,r,i]=t,l=i.match(/"[^"]*"?|[^,"]+/g)??[];return{key:o,operator:r,values:l.map(Yn),source:e}}let n=e.length>1&&e.startsWith("-"),s=Yn(n?e.slice(1):e);return{key:"",operator:n?"-text":"text",values:[s],source:e}}function ir(e,t){return e.labels&&Object.hasOwn(e.labels,t)?String(e.labels[t]):""}function Yn(e){return e.replaceAll('"',"").toLowerCase()}function Qn(e){return/[\s",]/.test(e)?`"${e.replaceAll('"',"")}"`:e}function es(e,t){let n=e.map(s=>lr(s,t));return n.length===1?n[0]:s=>{for(let o of n)if(!o(s))return!1;return!0}}function ar(e,t,n){return e.map(o=>{let r=es(e.filter(l=>l!==o),t),i=lr(o,t);return{term:o,hidden:n.filter(l=>r(l)&&!i(l)).length}}).filter(o=>o.hidden).sort((o,r)=>r.hidden-o.hidden)}var sr=new WeakMap;function lr({key:e,operator:t,values:n},s){if(t==="text"||t==="-text"){let i=t==="text";return l=>Sa(l,s).includes(n[0])===i}let o=s.find(i=>i.id===e),r=o?i=>o.text(i).toLowerCase():i=>ir(i,e).toLowerCase();if(t===">"||t==="<"||t===">="||t==="<="){let i=Number.parseFloat(n[0]),l=o?.value??r;return p=>{let d=l(p),u=typeof d=="number"?d:Number.parseFloat(d??"");return t===">"?u>i:t==="<"?u<i:t===">="?u>=i:u<=i}}switch(t){case"=":return n.length===1?i=>r(i)===n[0]:i=>n.includes(r(i));case"!=":return i=>!n.includes(r(i));case"~":return i=>n.some(l=>r(i).includes(l));default:return i=>!n.some(l=>r(i).includes(l))}}function Sa(e,t){let n=sr.get(e);if(n===void 0){let s=t.filter(o=>!o.noFilter).map(o=>o.text(e));if(e.labels)for(let[o,r]of Object.entries(e.labels))s.push(`${o}=${r}`);n=s.join(`
`).toLowerCase(),sr.set(e,n)}return n}function cr(e,t,n,s=8){let o=rr.exec(e);if(!o)return Aa(e.toLowerCase(),t,n,s);let[,r,i,l]=o,p=l.lastIndexOf(","),[d,u]=[l.slice(0,p+1),l.slice(p+1).replaceAll('"',"").toLowerCase()],m=t.find(h=>h.id===r),f=ur(n,`=${r}`,h=>{for(let v of n){let $=m?m.text(v):ir(v,r);$&&h.set($,(h.get($)??0)+1)}}),c=new Set((d.match(/"[^"]*"|[^,"]+/g)??[]).map(Yn));return[...f].filter(([h])=>!c.has(h.toLowerCase())).filter(([h])=>h.toLowerCase().includes(u)&&h.toLowerCase()!==u).sort(([h,v],[$,g])=>Number($.toLowerCase().startsWith(u))-Number(h.toLowerCase().startsWith(u))||g-v).slice(0,s).map(([h,v])=>({text:`${r}${i}${d}${Qn(h)}`,label:h,count:v}))}function Aa(e,t,n,s){let o=ts(n);return[...new Map([...t.filter(i=>!i.noFilter).map(i=>[i.id,0]),...o])].filter(([i])=>i.toLowerCase().includes(e)).sort(([i],[l])=>Number(l.toLowerCase().startsWith(e))-Number(i.toLowerCase().startsWith(e))).slice(0,s).map(([i,l])=>({text:`${i}=`,label:i,count:l}))}var or=new WeakMap;function ur(e,t,n){let s=or.get(e);s||(s=new Map,or.set(e,s));let o=s.get(t);return o||(o=new Map,n(o),s.set(t,o)),o}function ts(e){return ur(e,"",t=>{for(let n of e)for(let s in n.labels)t.set(s,(t.get(s)??0)+1)})}var pr=[["d",86400],["h",3600],["m",60],["s",1]];function te(e){let t=Math.max(0,Math.floor(e));if(t<120)return`${t}s`;for(let n=0;n<3;n+=1){let[s,o]=pr[n];if(t<o)continue;let r=Math.floor(t/o),[i,l]=pr[n+1],p=Math.floor(t%o/l);return s==="m"||!p||r>=10?`${r}${s}`:`${r}${s} ${p}${i}`}return`${t}s`}function sn(e){return typeof e=="number"?e:typeof e=="string"&&e?Date.parse(e)/1e3:Number.NaN}var dr=new Map;function ns(e,t){if(!Number.isFinite(e))return"";let n=dr.get(t);n||(n=new Intl.DateTimeFormat("en-CA",{year:"numeric",month:"2-digit",day:"2-digit",hour:"2-digit",minute:"2-digit",second:"2-digit",hourCycle:"h23",timeZoneName:"short",...t?{timeZone:t}:{}}),dr.set(t,n));let s={};for(let{type:o,value:r}of n.formatToParts(e*1e3))s[o]=r;return`${s.year}-${s.month}-${s.day} ${s.hour}:${s.minute}:${s.second} ${s.timeZoneName}`}function H({at:e,suffix:t=""}){if(!Number.isFinite(e))return a`<span class="muted">–</span>`;let n=w()-e;(n<120?be:zt).value;let s=ns(e,pe.value);return a`<time class="age" dateTime=${fr(e)} title=${s}>${te(n)}${t}</time>`}function on({at:e}){return a`<time dateTime=${fr(e)}>${ns(e,pe.value)}</time>`}function fr(e){return Math.abs(e)<864e10?new Date(e*1e3).toISOString():""}var Ca=/^[A-Za-z0-9][A-Za-z0-9._:@-]*$/;function Ce(e,...t){return t.every(n=>Ca.test(n))?e.reduce((n,s,o)=>n+(t[o-1]??"")+s):""}function mr(e){return e.replaceAll(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,"")}var Ta=5e3,hr=S(""),rn="",ss=0;function $r(e){rn=e,ss||_r()}function _r(){hr.value=rn,rn="",ss=setTimeout(()=>{ss=0,rn&&_r()},Ta)}function vr(){return a`<div class="unseen" role="status">${hr}</div>`}function ve({text:e,label:t,children:n}){let[s,o]=j(!1);async function r(){await navigator.clipboard.writeText(mr(e)),$r(`copied ${t}`),o(!0),setTimeout(()=>o(!1),1500)}return a`
<button type="button" class=${n?"button button--quiet":"icon-button"} onClick=${r}
aria-label=${n?null:`copy ${t}`} title=${`copy ${t}`}>
<${A} name=${s?"check":"copy"} size=${14} />${n}
</button>`}function Te({text:e}){return e?a`
<div class="command"><code>${e}</code><${ve} text=${e} label="command" /></div>`:null}function gr(e,t,n){let s=document.createElement("a");s.href=URL.createObjectURL(new Blob([t],{type:n})),s.download=e,s.click(),setTimeout(()=>URL.revokeObjectURL(s.href),1e3)}function ne({label:e="loading",rows:t=8}){let[n,s]=j(!1);return N(()=>{let o=setTimeout(()=>s(!0),200);return()=>clearTimeout(o)},[]),a`
<div class="skeleton" role="status" aria-label=${e}>
${n&&Array.from({length:t},(o,r)=>a`<div class="skeleton__row" key=${r}></div>`)}
</div>`}function V({icon:e="circleCheck",title:t,children:n}){return a`
<div class="empty">
<${A} name=${e} size=${28} class="empty__icon" />
<h2 class="empty__title">${t}</h2>
${n}
</div>`}function Qe({terms:e,columns:t,rows:n,noun:s}){let o=ar(e,t,n),r=e.map(i=>i.source);return a`
<${V} icon="search" title=${`No ${s} match this filter`}>
${o.slice(0,3).map(({term:i,hidden:l})=>a`
<p key=${i.source}>${l} hidden by <span class="chip">${i.source}</span>${" "}
<a href=${U({q:r.filter(p=>p!==i.source).join(" ")})}>remove</a></p>`)}
<p><button type="button" class="button" onClick=${()=>R(U({q:null}))}>Clear filter</button></p>
<//>`}function br({cluster:e,resources:t}){let[n,s]=j("");return N(()=>{Y("/api/v1/clusters",{clusters:e}).then(o=>s(o.clusters[0]?.reason??""),()=>{})},[e]),n?a`<${V} icon="triangleAlert" title=${`kas cannot check your rights in ${e}`}><p>${n}</p><//>`:a`
<${V} icon="ban" title=${`You may not list ${t.join(", ")} in all namespaces of ${e}`}>
<p>Objects of namespaces where you may list them appear here. To check a right in this cluster:</p>
${t.slice(0,3).map(o=>a`
<${Te} key=${o} text=${`kubectl auth can-i list ${o} --all-namespaces`} />`)}
<//>`}function se({what:e,status:t,message:n,since:s,retryAt:o=0,retry:r}){be.value;let i=o-w(),p={[-1]:"error in this browser",0:"no response from kas",403:"refused by kas"}[t]??`error of kas (${t})`;return a`
<${V} icon=${t===403?"ban":"triangleAlert"} title=${`${e}: ${p}`}>
<p>${n}</p>
<p class="muted">since <${H} at=${s} suffix=" ago" />${i>0&&`, next attempt in ${te(i)}`}</p>
<p><button type="button" class="button" onClick=${r}>Retry now</button></p>
<//>`}function et({incomplete:e,missingKas:t=0,isCut:n=!1}){if(!e.length&&!t&&!n)return null;let s=[];return e.length&&s.push(e.length===1?`${e[0].name}: ${e[0].reason||e[0].state}`:`${e.length} clusters are incomplete`),t&&s.push(`${t} kas did not respond`),n&&s.push("there are more rows than this list can have: filter by namespace"),a`
<details class="notice notice--warning">
<summary><${A} name="triangleAlert" /> <span>${s.join("; ")}</span></summary>
<ul class="incomplete">
${e.slice(0,100).map(o=>a`
<li key=${o.name}><strong>${o.name}</strong> ${o.state}${o.reason?`: ${o.reason}`:""}
${o.lastSeen?a`, last data <${H} at=${o.lastSeen} suffix=" ago" />`:""}</li>`)}
${e.length>100&&a`<li>and ${e.length-100} more</li>`}
</ul>
</details>`}function kr(e,t){let n=[e.map(s=>yr(s.title))];for(let s of t)n.push(e.map(o=>yr(o.text(s))));return n.map(s=>`${s.join(",")}\r
`).join("")}function yr(e){let t=/^[=+\-@\t\r]/.test(e)?`'${e}`:e;return/[",\r\n]/.test(t)?`"${t.replaceAll('"','""')}"`:t}function tt({name:e,columns:t,rows:n}){return a`
<button type="button" class="icon-button" onClick=${()=>gr(`${e}.csv`,kr(t,n),"text/csv")} aria-label="save as CSV" title="save as CSV"
disabled=${!n.length}><${A} name="download" /></button>`}var Ma=60;function nt({columns:e,rows:t,hits:n,total:s,noun:o,example:r,children:i}){let l=L.value.params.get("q")??"",[p,d]=j(!1),[u,m]=j(-1),[,f]=j(0),c=q(null),h=q(0),v=q(null);(!v.current||!h.current&&v.current.query!==l)&&(v.current={query:l,sources:Mt(l).map(b=>b.source),draft:""});let{sources:$,draft:g}=v.current;N(()=>()=>clearTimeout(h.current),[]);function y(b,F,x){clearTimeout(h.current);let re=[...b,F].filter(Boolean).join(" ");v.current={query:re,sources:b,draft:F};function z(){h.current=0,R(U({q:re||null,open:null}),{replace:x}),f(J=>J+1)}x&&F?(h.current=setTimeout(z,Ma),f(J=>J+1)):z()}function E(b){m(-1),/(?:!=|!~|>=|<=|=|~|>|<)$/.test(b)?y($,b,!0):y([...$,b],"",!1)}let k=p?cr(g,e,t):[];function oe(b){if(b.key==="ArrowDown"||b.key==="ArrowUp"){b.preventDefault(),d(!0);let F=b.key==="ArrowDown"?1:-1;m(x=>k.length?(x+F+k.length+(x<0&&F<0?1:0))%k.length:-1)}else b.key==="Tab"&&p&&g&&k.length&&u>=0?(b.preventDefault(),E(k[u].text)):b.key==="Enter"?u>=0&&k[u]?E(k[u].text):g.trim()&&E(g.trim()):b.key===" "&&Ea(g)?(b.preventDefault(),E(g)):b.key==="Escape"?(b.stopPropagation(),p&&k.length?d(!1):g?y($,"",!0):c.current?.blur()):b.key==="Backspace"&&!g&&$.length&&(b.preventDefault(),y($.slice(0,-1),$[$.length-1],!0))}return a`
<div class="toolbar">
<div class="filter">
<${A} name="search" class="filter__icon" />
<div class="filter__terms">
${$.map((b,F)=>a`
<span class="chip chip--term" key=${`${b}${F}`}>${b}<button type="button"
aria-label=${`remove filter ${b}`} onClick=${()=>{y($.filter((x,re)=>re!==F),g,!1),c.current?.focus()}}><${A} name="x" size=${12} /></button></span>`)}
<input ref=${c} id="filter" type="text" role="combobox" aria-label=${`filter ${o}`} spellcheck="false"
autocomplete="off" autocapitalize="off" placeholder=${$.length?"":`Filter, such as ${r}`}
aria-expanded=${k.length>0} aria-controls="filter-offers" aria-autocomplete="list"
aria-activedescendant=${u>=0&&k.length?`filter-offer-${u}`:null} value=${g}
onInput=${b=>{d(!0),m(-1),y($,b.target.value.replace(/^\s+/,""),!0)}}
onKeyDown=${oe} onFocus=${()=>d(!!g)} onBlur=${()=>d(!1)} />
</div>
${v.current.query&&a`
<button type="button" class="icon-button" aria-label="clear filter" title="clear filter"
onClick=${()=>{y([],"",!1),c.current?.focus()}}><${A} name="x" /></button>`}
<ul class=${ke("offers",k.length>0&&"is-open")} id="filter-offers" role="listbox"
aria-label="completions">
${k.map((b,F)=>a`
<li key=${b.text} id=${`filter-offer-${F}`} role="option" aria-selected=${F===u}
class=${ke("offer",F===u&&"is-chosen")}
onPointerDown=${x=>{x.preventDefault(),E(b.text)}}>
<span class="offer__text">${b.label}</span>${b.count>0&&a`<span class="muted">${b.count}</span>`}
</li>`)}
</ul>
</div>
<span class="hits" aria-live="off">${l?`${n.toLocaleString("en")} of `:""}${s.toLocaleString("en")} ${o}</span>
${i}
</div>`}function Ea(e){let[t]=Mt(e);return!!t&&(t.operator!=="text"||e.length>1)&&(e.match(/"/g)??[]).length%2===0}var Oa=new Intl.Collator("en",{numeric:!0});function ja(e,t,n){let s=e==null||e===""||Number.isNaN(e),o=t==null||t===""||Number.isNaN(t);if(s||o)return Number(s)-Number(o);if(typeof e=="number"&&typeof t=="number")return n*(e-t);let[r,i]=[String(e),String(t)];return r===i?0:n*Oa.compare(r,i)}function os(e,t){let n=e.startsWith("-")?-1:1,s=t.find(o=>o.id===e.replace(/^-/,""));return s?{column:s,direction:n}:null}function an(e,{column:t,direction:n}){let s=e.map(o=>({row:o,value:t.value(o)}));return s.sort((o,r)=>ja(o.value,r.value,n)||(o.row.key<r.row.key?-1:+(o.row.key>r.row.key))),s.map(o=>o.row)}function st(e,t,n,s=[]){let{params:o}=L.value,[r,i,l]=[o.get("q")??"",o.get("sort")??"",o.get("group")??""],p=os(i,t),d=p??os(n,[...t,...s]),u=C(()=>d?an(e,d):[...e],[e,t,i,n]),m=C(()=>Mt(r),[r]),f=C(()=>m.length?u.filter(es(m,t)):u,[u,m,t]),c=C(()=>l?Na(f,l):f.map(h=>({key:h.key,row:h})),[f,l]);return{sort:p,terms:m,found:f,items:c,group:l,query:`${r}
${i}
${l}
${o.get("ns")??""}`}}function Na(e,t){let n=new Map;for(let o of e){let r=o.labels&&Object.hasOwn(o.labels,t)?o.labels[t]:"",i=n.get(r);i?i.push(o):n.set(r,[o])}return[...n.keys()].sort((o,r)=>+!o-+!r||(o<r?-1:1)).flatMap(o=>{let r=n.get(o)??[];return[{key:`group/${o}`,title:o?`${t}=${o}`:`without ${t}`,count:r.length},...r.map(i=>({key:i.key,row:i}))]})}function wr(e){return[...ts(e)].sort((t,n)=>n[1]-t[1]).slice(0,20).map(([t])=>t)}var rs=100,is=25;function xr({rows:e,columns:t,tools:n,empty:s}){let{found:o,terms:r}=st(e,t,"name"),[i,l]=j(rs),{clusters:p,lines:d}=C(()=>Pa(o),[o]),u=p.slice(0,is);return a`
<section class="list" aria-label="applications by cluster">
<${nt} columns=${t} rows=${e} hits=${o.length} total=${e.length} noun="applications"
example="name~api cluster=berlin,paris">
${n}<${tt} name="applications" columns=${t} rows=${o} />
<//>
${o.length===0&&(r.length?a`<${Qe} terms=${r} columns=${t} rows=${e} noun="applications" />`:s)}
${o.length>0&&a`
${p.length>is&&a`
<p class="matrix-note muted">The first ${is} of ${p.length} clusters; others: <code>cluster=</code>.</p>`}
<div class="matrix-frame" role="region" aria-label="versions by cluster" tabindex="0">
<table class="matrix">
<thead><tr><th scope="col">Application</th>${u.map(m=>a`<th key=${m} scope="col">${m}</th>`)}</tr></thead>
<tbody>
${d.slice(0,i).map(m=>a`
<tr key=${m.key}><th scope="row" title=${m.key}>${m.name} <span class="muted">${m.namespace}</span></th>
${u.map(f=>a`<${La} key=${f} row=${m.cells.get(f)} counts=${m.counts} />`)}</tr>`)}
</tbody>
</table>
</div>
${d.length>i&&a`<p class="matrix-note"><button type="button" class="button"
onClick=${()=>l(i+rs)}>${Math.min(rs,d.length-i)} more of ${d.length}</button></p>`}`}
</section>`}function La({row:e,counts:t}){if(!e)return a`<td><span class="muted" aria-label="not there">–</span></td>`;let n=Math.max(...t.values()),s=[...t].filter(([,i])=>i===n),o=t.size>1&&(s.length>1||e.version!==s[0][0]),r=_e(`${M}/applications`,{open:[e.cluster,e.namespace,e.name].join("/")});return a`
<td class=${o?"differs":""}>
<a class="cell-link" href=${r}>${e.version||"no version"}
${e.health&&e.health!=="current"&&a`<${ae} state=${e.health} />`}
${o&&a`<span class="muted">differs</span>`}</a>
</td>`}function Pa(e){let t=[...new Set(e.map(s=>s.cluster))].sort(),n=new Map;for(let s of e){let o=`${s.name} in ${s.namespace}`,r=n.get(o);r||(r={key:o,name:s.name,namespace:s.namespace,cells:new Map,counts:new Map},n.set(o,r)),r.cells.set(s.cluster,s),r.counts.set(s.version,(r.counts.get(s.version)??0)+1)}return{clusters:t,lines:[...n.values()]}}var Ra=/^(?:https?:\/\/|mailto:)[^\s\u0000-\u0020\u007f-\u009f|<>"'\\^`{}]+$/i,Fa=/^data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,]/i;function Sr(e){return typeof e=="string"&&e.length<=512&&Ra.test(e)?e:""}function Ar(e){return typeof e=="string"&&e.length<=65536&&Fa.test(e)?e:""}var le=S(null);var G=S(""),Et=[["f","Fleet",`${M}/fleet`],["p","Problems",`${M}/problems`],["e","Events",`${M}/events`],["a","Applications",`${M}/applications`]],Cr=1500,Tr=0;document.addEventListener("keydown",e=>{if((e.ctrlKey||e.metaKey)&&!e.altKey&&!e.shiftKey&&e.key.toLowerCase()==="k"){e.preventDefault(),G.value=G.value==="palette"?"":"palette";return}if(e.ctrlKey||e.metaKey||e.altKey||e.defaultPrevented)return;if(e.key==="Escape"){!G.value&&L.value.params.get("open")&&!Mr(e.target)&&as();return}if(!de.value||G.value||Mr(e.target))return;let t=e.timeStamp-Tr<Cr&&Et.find(([n])=>n===e.key);if(Tr=e.key==="g"?e.timeStamp:-Cr,t){e.preventDefault(),R(t[2]);return}switch(e.key){case"/":document.getElementById("filter")?.focus();break;case"?":G.value="help";break;case"j":le.peek()?.move(1);break;case"k":le.peek()?.move(-1);break;default:return}e.preventDefault()});function as(){let e=U({open:null}),t=document.querySelector(".table__row.is-open");R(e),t instanceof HTMLElement&&requestAnimationFrame(()=>t.focus({preventScroll:!0}))}function Mr(e){return e instanceof HTMLElement&&(e.isContentEditable||/^(?:TEXTAREA|SELECT)$/.test(e.tagName)||e instanceof HTMLInputElement&&!/^(?:checkbox|radio|button)$/.test(e.type))}function ot({title:e,kind:t,children:n}){let s=q(null),o=L.value.params.get("open");return N(()=>{s.current?.focus({preventScroll:!0})},[o]),Da(),a`
<aside class="panel" aria-label=${`${t} ${e}`}>
<header class="panel__head">
<div class="panel__title"><span class="muted">${t}</span><h2 tabindex="-1" ref=${s}>${e}</h2></div>
<${ve} text=${e} label="name" />
<button type="button" class="icon-button" aria-label="previous (k)" title="previous (k)"
onClick=${()=>le.peek()?.move(-1)}><${A} name="arrowUp" /></button>
<button type="button" class="icon-button" aria-label="next (j)" title="next (j)"
onClick=${()=>le.peek()?.move(1)}><${A} name="arrowDown" /></button>
<button type="button" class="icon-button" aria-label="close (Esc)" title="close (Esc)"
onClick=${as}><${A} name="x" /></button>
</header>
${n}
</aside>`}function Da(){let[e,t]=j(!1);N(()=>{let n=matchMedia("(max-width: 52rem)"),s=()=>t(n.matches);return s(),n.addEventListener("change",s),()=>n.removeEventListener("change",s)},[]),N(()=>{if(!e)return;let n=document.querySelectorAll(".nav, .footer, .with-panel > :not(.panel), .heading, .tabs");for(let s of n)s.setAttribute("inert","");return()=>{for(let s of n)s.removeAttribute("inert")}},[e])}function Er({row:e}){return a`
<${ot} title=${e.name} kind="Application">
<section class="panel__section">
${e.health&&a`<div><${ae} state=${e.health} /></div>`}
<dl class="facts">
<div><dt>Cluster</dt><dd><a href=${T(e.cluster)}>${e.cluster}</a></dd></div>
<div><dt>Namespace</dt><dd>${e.namespace}</dd></div>
${e.version&&a`<div><dt>Version</dt><dd>${e.version}</dd></div>`}
${e.source&&a`<div><dt>Source</dt><dd>${e.source}</dd></div>`}
${e.images.map(t=>a`
<div key=${t}><dt>Image</dt><dd><code>${t}</code><${ve} text=${t} label="image" /></dd></div>`)}
</dl>
</section>
<section class="panel__section"><h3>Workloads</h3>
${!e.workloads.length&&a`<p class="muted">No workload that you may see belongs to it.</p>`}
${e.workloads.map(t=>a`
<div class="event" key=${`${t.kind}/${t.name}`}>
<span class="event__line"><a href=${T(e.cluster,"workloads",{open:[t.kind,e.namespace,t.name].join("/")})}>${t.kind} ${t.name}</a><span>${t.ready}/${t.wanted}</span></span>
${t.health!=="current"&&a`<p><${ae} state=${t.health} /> ${t.reason}</p>`}
</div>`)}
</section>
${e.declarations.map(t=>a`
<${Ia} key=${`${t.kind}${t.namespace}${t.name}`} one=${t} />`)}
<//>`}function Ia({one:e}){let t=Object.entries(e.links??{}).map(([i,l])=>[Sr(i),l]).filter(([i])=>i),n=Ar(e.icon),s=[e.repository,e.path].filter(Boolean).join(" "),o=[["Type",e.type],["Version",e.version],["From",s&&a`<code>${s}</code>`],["Wanted",e.wanted],["Applied",e.revision&&a`<code>${e.revision}</code>`],["Target",e.target!==e.namespace&&e.target],["Owners",e.owners?.join(", ")],...Object.entries(e.info??{}),...Object.entries(e.references??{}),["Not checked",e.unknownComponents?.join(", ")]],r=Object.entries(e.stated??{});return a`
<section class="panel__section">
<h3>${n&&a`<img class="app-icon" src=${n} alt="" />`}${e.kind} of ${e.tool}</h3>
${e.description&&a`<p>${e.description}</p>`}
${e.problem&&a`<p class="message message--bad">${e.problem}</p>`}
<dl class="facts">${o.filter(([,i])=>i).map(([i,l])=>a`
<div key=${i}><dt>${i}</dt><dd>${l}</dd></div>`)}</dl>
${r.length>0&&a`
<div><p class="muted">It says of itself, and kas does not verify:</p>
<dl class="facts">${r.map(([i,l])=>a`<div key=${i}><dt>${i}</dt><dd>${l}</dd></div>`)}</dl></div>`}
${t.length>0&&a`
<div class="links">${t.map(([i,l])=>a`
<a key=${i} href=${i} target="_blank" rel="noopener noreferrer"><${A} name="externalLink" size=${14} />${l||i}</a>`)}</div>`}
</section>`}var Ba=640,Ua=100,rt=6,Or={comfortable:40,compact:32,narrow:64};function ln({label:e,columns:t,items:n,sort:s,link:o,rowTitle:r,narrow:i,openKey:l,query:p}){let d=q(null),u=za(d),m=u<Ba,f=m?Or.narrow:Or[ye.value]??40,[c,h,v]=Va(n,p),[$,g]=Ga(d,c.length,f),[y,E]=j(""),k=q(-1),oe=C(()=>t.filter(_=>!_.isHidden&&(_.least??0)<=u),[t,u]),b=oe.map(_=>_.width).join(" "),F=Math.ceil((g-$)/16)*16,x=Math.max(0,c.findIndex(_=>_.key===(l||y)));function re(_){let Z=c[_];Z&&(jr(d.current,_,f),k.current=_,E(Z.key),z(X=>X+1))}let[,z]=j(0);mt(()=>{if(k.current<0)return;let _=d.current?.querySelector(`[data-index="${k.current}"]`);_ instanceof HTMLElement&&(k.current=-1,_.focus({preventScroll:!0}))});function J(_){if(l){let X=c.findIndex(li=>li.key===l)+_;for(;c[X]&&!("row"in c[X]);)X+=_;let me=c[X];if(!me||!("row"in me))return;jr(d.current,X,f),R(o(me.row),{replace:!0})}else{let Z=d.current?.contains(document.activeElement);re(Z?Math.min(c.length-1,Math.max(0,x+_)):x)}}N(()=>{let _={move:J,objects:()=>n.flatMap(Z=>"row"in Z?[{...r(Z.row),href:o(Z.row)}]:[])};return le.value=_,()=>{le.peek()===_&&(le.value=null)}});function ce(_){if(_.ctrlKey||_.metaKey||_.altKey)return;let Z=Math.max(1,Math.floor(innerHeight/f)-3),me={ArrowDown:1,ArrowUp:-1,PageDown:Z,PageUp:-Z,Home:-c.length,End:c.length}[_.key]??(de.value?{j:1,k:-1}[_.key]:0);me?(_.preventDefault(),_.stopPropagation(),l?J(me):re(Math.min(c.length-1,Math.max(0,x+me)))):_.key==="Enter"&&_.target instanceof HTMLElement&&_.target.role==="row"&&_.target.querySelector("a")?.click()}return a`
<div class="table-frame" ...${v.events}>
${h>0&&a`
<button type="button" class="newer" onClick=${v.release}>${h} newer, show</button>`}
<div class=${ke("table",m&&"table--narrow")} role="grid" aria-label=${e}
aria-rowcount=${c.length+1} aria-colcount=${m?1:oe.length}
style=${{"--columns":m?"1fr":b,"--row":`${f}px`}}>
<div class="table__head" role="rowgroup">
<div class="table__row table__row--head" role="row" aria-rowindex="1">
${m?a`<div role="columnheader" class="cell"><${Ka} columns=${t} sort=${s} /></div>`:oe.map(_=>a`<${Wa} key=${_.id} column=${_} sort=${s} />`)}
</div>
</div>
<div class="table__body" role="rowgroup" ref=${d} onKeyDown=${ce}
style=${{height:`${c.length*f}px`,paddingTop:`${$*f}px`}}>
${c.slice($,g).map((_,Z)=>{let X=$+Z,me=X===x;return"row"in _?a`<${ls} key=${X%F} item=${_} row=${_.row} isGone=${_.isGone} index=${X} columns=${oe}
tracks=${b} isNarrow=${m} narrow=${i} isActive=${me} isOpen=${_.key===l}
href=${o(_.row)} onFocus=${E} />`:a`<${Ha} key=${X%F} item=${_} index=${X} span=${oe.length} isActive=${me}
onFocus=${E} />`})}
</div>
</div>
</div>`}var ls=class extends ue{_drawn={key:"",texts:[],tints:[],columns:null};shouldComponentUpdate(t){let n=this.props;return t.row!==n.row||t.isActive!==n.isActive||t.isOpen!==n.isOpen||t.index!==n.index||t.tracks!==n.tracks||t.isNarrow!==n.isNarrow||t.isGone!==n.isGone||t.href!==n.href}render({item:t,row:n,index:s,columns:o,isNarrow:r,narrow:i,isActive:l,isOpen:p,isGone:d,href:u,onFocus:m}){let f=l?0:-1;return(this._drawn.key!==n.key||this._drawn.columns!==o)&&(this._drawn={key:n.key,texts:[],tints:[],columns:o}),a`
<div class=${ke("table__row",p&&"is-open",d&&"is-gone")} role="row" tabindex=${f}
aria-rowindex=${s+2} aria-selected=${p} data-index=${s} onFocusIn=${()=>m(t.key)}>
${r?a`<div class="cell cell--narrow" role="gridcell">${i(n,f,u)}</div>`:o.map((c,h)=>this._cell(c,h,n,f,u))}
</div>`}_cell(t,n,s,o,r){let{texts:i,tints:l}=this._drawn,p=t.text(s);i[n]&&i[n]!==p&&(l[n]=l[n]===1?2:1),i[n]=p;let d=t.cell?t.cell(s,o):p;return a`
<div class=${t.align==="end"?"cell cell--end":"cell"} role="gridcell"
title=${t.cell||p.length<9?null:p} data-tint=${l[n]||null}>
${t.isMain?a`<a class="row-link" href=${r} tabindex="-1">${d}</a>`:d}
</div>`}};function Ha({item:e,index:t,span:n,isActive:s,onFocus:o}){return a`
<div class="table__row table__row--group" role="row" aria-rowindex=${t+2} tabindex=${s?0:-1}
data-index=${t} onFocusIn=${()=>o(e.key)}>
<div class="cell" role="gridcell" aria-colspan=${n}>
<strong>${e.title}</strong> <span class="muted">${e.count}</span>${e.detail}
</div>
</div>`}function Wa({column:e,sort:t}){let n=t?.column.id===e.id?t.direction:0,s=n===1?"ascending":n===-1?"descending":null;return a`
<div class=${ke("cell",e.align==="end"&&"cell--end")} role="columnheader" aria-sort=${s}>
<button type="button" class="sort-button" onClick=${()=>R(U({sort:qa(e,n)}))}>
${e.title}${n!==0&&a`<${A} name=${n===1?"arrowUp":"arrowDown"} size=${12} />`}
</button>
</div>`}function qa(e,t){let n=e.largestFirst?-1:1,s=t===0?n:t===n?-n:0;return s===0?null:`${s<0?"-":""}${e.id}`}function Ka({columns:e,sort:t}){let n=t?`${t.direction<0?"-":""}${t.column.id}`:"";return a`
<label class="sort-menu">Sorted by${" "}
<select value=${n} onChange=${o=>R(U({sort:o.target.value}))}>
<option value="">worst first</option>
${e.flatMap(o=>[o.id,`-${o.id}`].map(r=>a`
<option key=${r} value=${r}>${o.title.toLowerCase()||o.id} ${r[0]==="-"?"↓":"↑"}</option>`))}
</select>
</label>`}function Va(e,t){let[n,s]=j(!1),o=q({query:t,items:e}),r=q({pointer:!1,focus:!1});function i(){s(r.current.pointer||r.current.focus)}let l={events:{onPointerEnter:u=>{u.pointerType==="mouse"&&(r.current.pointer=!0,i())},onPointerLeave:()=>{r.current.pointer=!1,i()},onFocusIn:u=>{r.current.focus=u.target instanceof Element&&u.target.matches(":focus-visible"),i()},onFocusOut:u=>{u.relatedTarget instanceof Node&&u.currentTarget.contains(u.relatedTarget)||(r.current.focus=!1,i())}},release:()=>{o.current={query:t,items:e},s(!1),setTimeout(i)}};if(!n||o.current.query!==t||!o.current.items.length)return o.current={query:t,items:e},[e,0,l];let p=new Map(e.map(u=>[u.key,u]));return[o.current.items.map(u=>{let m=p.get(u.key);return m?(p.delete(u.key),m):"row"in u?{...u,isGone:!0}:u}),p.size,l]}function Ga(e,t,n){let[s,o]=j([0,40]);return mt(()=>{function i(){if(!e.current)return;let l=e.current.getBoundingClientRect().top,p=Math.max(0,Math.floor(-l/n/rt)*rt-rt),d=Math.ceil((innerHeight-l)/n/rt)*rt+rt;o(u=>u[0]===p&&u[1]===d?u:[p,d])}return i(),addEventListener("scroll",i,{passive:!0}),addEventListener("resize",i),()=>{removeEventListener("scroll",i),removeEventListener("resize",i)}},[n]),t<=Ua?[0,t]:[Math.min(s[0],Math.max(0,t-1)),Math.min(t,s[1])]}function za(e){let[t,n]=j(()=>Math.min(innerWidth,4e3));return mt(()=>{if(!e.current)return;let s=new ResizeObserver(([o])=>n(Math.round(o.contentRect.width)));return s.observe(e.current),n(e.current.clientWidth),()=>s.disconnect()},[]),t}function jr(e,t,n){if(!e)return;let s=e.getBoundingClientRect().top+t*n,o=110,r=innerHeight-n-70;s<o?scrollBy(0,s-o):s>r&&scrollBy(0,s-r),L.peek()}var Lr={bad:2,progress:1,ok:0},ms=e=>e.state||e.health||"",cs={id:"state",title:"State",width:"minmax(7.5rem, 11.5rem)",text:ms,largestFirst:!0,value:e=>Lr[Be(e)],cell:e=>ae({state:ms(e),health:e.health})},cn={id:"name",title:"Name",width:"minmax(9rem, 2fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>ee({text:e.name})},Nr={id:"kind",title:"Kind",width:"7rem",least:820,text:e=>e.kind,value:e=>e.kind},un={id:"namespace",title:"Namespace",width:"minmax(6rem, 1fr)",text:e=>e.namespace,value:e=>e.namespace},us={id:"reason",title:"Reason",width:"minmax(8rem, 2fr)",least:980,text:e=>e.reason??"",value:e=>e.reason,cell:e=>a`<span class="muted" title=${e.reason??""}>${e.reason??""}</span>`},ps={id:"age",title:"Age",width:"5rem",align:"end",least:700,noFilter:!0,text:e=>e.created??"",value:e=>-e.createdAt,cell:e=>a`<${H} at=${e.createdAt} />`},ds={id:"health",title:"Health",width:"0",isHidden:!0,noFilter:!0,text:e=>e.health??"",value:e=>e.health},it={id:"cluster",title:"Cluster",width:"minmax(7rem, 1fr)",text:e=>e.cluster,value:e=>e.cluster,cell:(e,t)=>a`<a tabindex=${t} href=${T(e.cluster)}>${e.cluster}</a>`},at={id:"trouble",title:"",width:"0",text:()=>"",isHidden:!0,value:e=>Lr[Be(e)]*1e12+(e.sinceAt||e.createdAt||0)};function pn(e){return e.wanted===void 0?"":`${e.ready}/${e.wanted}`}function fs(e){let n=(e.images?.[e.images.length-1]??"").split("@")[0].split("/").pop()??"";return n.includes(":")?n.slice(n.indexOf(":")+1):""}var Ja=(e,t)=>e?`${e}${t}`:"";function hs(e){let t=/^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$/.exec(String(e??"")),n={m:.001,Ki:2**10,Mi:2**20,Gi:2**30,Ti:2**40,k:1e3,M:1e6,G:1e9,T:1e12};return t?Number(t[1])*(n[t[2]]??1):null}function Za(e){let t=hs(e);return t===null?"":`${(t/2**30).toLocaleString("en",{maximumFractionDigits:1})} GiB`}var We={workloads:[cs,cn,Nr,un,{id:"ready",title:"Ready",width:"4.5rem",align:"end",text:pn,noFilter:!0,value:e=>e.wanted?e.ready/e.wanted:null},{id:"version",title:"Version",width:"7rem",least:820,text:fs,value:fs,cell:e=>a`<span title=${(e.images??[]).join(`
`)}>${fs(e)}</span>`},us,ps,ds,{id:"image",title:"Image",width:"0",isHidden:!0,text:e=>(e.images??[]).join(" "),value:e=>e.images?.[0]}],nodes:[cs,cn,{id:"version",title:"Version",width:"7rem",text:e=>e.version??"",value:e=>e.version},{id:"cpu",title:"CPU",width:"4rem",align:"end",noFilter:!0,text:e=>e.capacity?.cpu??"",value:e=>hs(e.capacity?.cpu),largestFirst:!0},{id:"memory",title:"Memory",width:"6rem",align:"end",noFilter:!0,text:e=>Za(e.capacity?.memory),value:e=>hs(e.capacity?.memory),largestFirst:!0},{...us,text:e=>[e.reason,...e.pressures??[]].filter(Boolean).join(", "),cell:e=>a`<span class="muted">${[e.reason,...e.pressures??[]].filter(Boolean).join(", ")}</span>`},{id:"os",title:"System",width:"minmax(6rem, 1fr)",least:1100,text:e=>e.os??"",value:e=>e.os},ps,ds],services:[cn,un,{id:"type",title:"Type",width:"8rem",text:e=>e.type??"",value:e=>e.type},{id:"ports",title:"Ports",width:"minmax(4rem, 8rem)",text:e=>(e.ports??[]).join(", "),value:e=>e.ports?.[0],noFilter:!0},{id:"addresses",title:"Addresses",width:"minmax(8rem, 2fr)",least:760,text:e=>(e.addresses??[]).join(", "),value:e=>e.addresses?.[0]},ps],problems:[cs,cn,Nr,un,us,{id:"restarts",title:"Restarts",width:"5.5rem",align:"end",least:1100,noFilter:!0,largestFirst:!0,text:e=>Ja(e.restarts,""),value:e=>e.restarts},{id:"since",title:"Since",width:"5rem",align:"end",noFilter:!0,text:e=>`${e.since??""}`,value:e=>-e.sinceAt,cell:e=>a`<${H} at=${e.sinceAt} />`},ds,{id:"node",title:"Node",width:"0",isHidden:!0,text:e=>e.node??"",value:e=>e.node},{id:"owner",title:"Owner",width:"0",isHidden:!0,text:e=>e.owner??"",value:e=>e.owner}],events:[{id:"last",title:"Last",width:"4.75rem",noFilter:!0,text:e=>`${e.lastAt}`,value:e=>-e.lastAt,cell:e=>a`<${H} at=${e.lastAt} />`},{id:"reason",title:"Reason",width:"minmax(8rem, 1fr)",text:e=>e.reason??"",value:e=>e.reason,isMain:!0},{id:"object",title:"Object",width:"minmax(9rem, 1.6fr)",text:e=>e.object??"",value:e=>e.object,cell:e=>ee({text:e.object??""})},un,{id:"count",title:"Count",width:"7.5rem",align:"end",noFilter:!0,largestFirst:!0,text:e=>`${e.count}`,value:e=>e.count,cell:e=>a`${e.count}${e.lastAt-e.firstAt>=60&&a` <span class="muted">in ${te(e.lastAt-e.firstAt)}</span>`}`},{id:"message",title:"Message",width:"minmax(10rem, 2.6fr)",least:900,text:e=>e.message??"",value:e=>e.message,cell:e=>a`<span class="muted" title=${e.message}>${e.message}</span>`}]};function Pr(e,t,n=!1){let s=[n&&e.cluster,e.namespace,e.kind!=="Event"&&e.kind].filter(Boolean).join(" · ");return e.kind==="Event"?a`
<span class="narrow__main">
<a class="row-link" href=${t} tabindex="-1">${ee({text:e.object??""})}</a>
<span class="muted"><${H} at=${e.lastAt} /></span>
</span>
<span class="narrow__more"><span class="muted">${e.reason} ×${e.count} · ${s}</span></span>`:a`
<span class="narrow__main">
<a class="row-link" href=${t} tabindex="-1">${ee({text:e.name})}</a>
<${ae} state=${ms(e)} health=${e.health} />
</span>
<span class="narrow__more">
<span class="muted">${s}${e.reason?` · ${e.reason}`:""}</span>
<span class="muted">${e.sinceAt?a`<${H} at=${e.sinceAt} />`:pn(e)}</span>
</span>`}function qe(e,t=!1){let n=e.kind==="Event"?[e.objectKind,e.namespace,e.objectName,e.reason]:[e.kind,e.namespace,e.name];return[...t?[e.cluster]:[],...n].join("/")}function Pe({noun:e,columns:t,rows:n,order:s,hidden:o,hasCluster:r=!1,panel:i,empty:l,example:p,nameOf:d,narrow:u,tools:m}){let{params:f}=L.value,c=f.get("open")??"",h=f.get("ns")??"",v=d??(x=>qe(x,r)),$=C(()=>{if(!h)return n;let x=new Set(h.split(","));return n.filter(re=>x.has(re.namespace))},[n,h]),{found:g,items:y,sort:E,terms:k,query:oe}=st($,t,s,o),b=c?n.find(x=>v(x)===c):null,F=a`
<section class="list" aria-label=${e}>
<${nt} columns=${t} rows=${$} hits=${g.length} total=${$.length} noun=${e}
example=${p}>
${m}
<${Xa} rows=${n} chosen=${h} />
<${tt} name=${e} columns=${t} rows=${g} />
<//>
${g.length>0&&a`
<${ln} label=${e} columns=${t} items=${y} sort=${E} query=${oe}
link=${x=>U({open:v(x)})} openKey=${b?.key??""}
rowTitle=${x=>({title:x.name||x.object,detail:[x.kind,x.namespace,r&&x.cluster].filter(Boolean).join(" ")})}
narrow=${u??((x,re,z)=>Pr(x,z,r))} />`}
${!g.length&&(k.length||h&&n.length?a`<${Qe} terms=${k} columns=${t} rows=${$} noun=${e} />`:l)}
</section>`;return a`
<div class=${c?"with-panel":"without-panel"}>
${F}
${c&&(b?i(b):a`
<${ot} title=${c.split("/").filter(Boolean).pop()??""} kind="">
<section class="panel__section"><p>This object is gone, or you may not see it.</p></section><//>`)}
</div>`}function Xa({rows:e,chosen:t}){let n=C(()=>{let i=new Map;for(let l of e)l.namespace&&i.set(l.namespace,(i.get(l.namespace)??0)+1);return[...i].sort(([l],[p])=>l<p?-1:1)},[e]),s=new Set(t.split(",").filter(Boolean));if(n.length<2&&!s.size)return null;function o(i,l){let p=new Set(s);l?p.add(i):p.delete(i),R(U({ns:[...p].sort().join(",")||null}))}let r=s.size===0?"All namespaces":s.size===1?[...s][0]:`${s.size} namespaces`;return a`
<details class="namespaces" onKeyDown=${i=>{i.key!=="Escape"||!i.currentTarget.open||(i.stopPropagation(),i.currentTarget.open=!1,i.currentTarget.querySelector("summary").focus())}} onFocusOut=${i=>{i.relatedTarget&&!i.currentTarget.contains(i.relatedTarget)&&(i.currentTarget.open=!1)}}>
<summary class="button" aria-label=${`namespaces: ${r}`}>
<span class="namespaces__label">${r}</span><${A} name="chevronDown" size=${14} /></summary>
<div class="namespaces__list" role="group" aria-label="namespaces">
${s.size>0&&a`<button type="button" class="button button--quiet" onClick=${()=>R(U({ns:null}))}>
All namespaces</button>`}
${n.map(([i,l])=>a`
<label key=${i}><input type="checkbox" checked=${s.has(i)}
onChange=${p=>o(i,p.target.checked)} />${i}
<span class="muted">${l}</span></label>`)}
</div>
</details>`}var Ya={failed:3,"in progress":2,terminating:1,current:0},$s=e=>e.workloads.reduce((t,n)=>[t[0]+n.ready,t[1]+n.wanted],[0,0]),dn=[{id:"health",title:"Health",width:"7.5rem",text:e=>e.health||"unknown",largestFirst:!0,value:e=>Ya[e.health]??-1,cell:e=>e.health?ae({state:e.health}):a`<span class="muted">no workloads</span>`},{id:"name",title:"Name",width:"minmax(9rem, 2fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>ee({text:e.name})},{id:"namespace",title:"Namespace",width:"minmax(6rem, 1fr)",text:e=>e.namespace,value:e=>e.namespace},{id:"version",title:"Version",width:"minmax(5rem, 1fr)",text:e=>e.version,value:e=>e.version},{id:"source",title:"Source",width:"6rem",least:820,text:e=>e.source,value:e=>e.source},{id:"pods",title:"Pods",width:"5rem",align:"end",noFilter:!0,least:700,text:e=>$s(e).join("/"),value:e=>$s(e)[1],largestFirst:!0},{id:"image",title:"Images",width:"minmax(8rem, 2fr)",least:1100,text:e=>e.images.join(" "),value:e=>e.images[0],cell:e=>a`<span class="muted" title=${e.images.join(`
`)}>${e.images[0]??""}</span>`}],Rr=[dn[0],dn[1],it,...dn.slice(2)];function fn({clusters:e}){let t=e.join(","),n=e.length!==1||t==="*",s=Mo(`applications ${t}`,c=>Y("/api/v1/applications",{clusters:t},c)),{data:o,error:r,since:i,retryAt:l}=s.state.value,p=C(()=>(o?.items??[]).map(c=>({...c,key:[c.cluster,c.namespace,c.name,c.declarations.length>0].join("/"),labels:{source:c.source}})),[o]),d=n&&L.value.params.get("view")==="matrix",u=c=>[...n?[c.cluster]:[],c.namespace,c.name].join("/");if(!o&&r)return a`<${se} what="applications" status=${r.status} message=${r.message} since=${i}
retryAt=${l} retry=${()=>s.reload()} />`;if(!o)return a`<${ne} label="loading applications" />`;let m=a`
<${V} icon="boxes" title="No applications">
<p>Workloads with labels such as <code>app.kubernetes.io/name</code>, and objects of app.k8s.io, Argo CD and Flux,
appear here.</p>
<//>`,f=n&&a`
<span class="segmented" role="group" aria-label="view">
<a href=${U({view:null})} aria-current=${d?null:"true"} aria-label="list" title="list">
<${A} name="list" /></a>
<a href=${U({view:"matrix",open:null})} aria-current=${d?"true":null} aria-label="matrix"
title="matrix: a column for each cluster"><${A} name="table" /></a>
</span>`;return a`
<${et} incomplete=${o.clusters.incomplete} missingKas=${o.missingKas} isCut=${o.cut} />
${r&&a`<div class="notice notice--warning">The rows are old: ${r.message}</div>`}
${d?a`<${xr} rows=${p} columns=${Rr} tools=${f} empty=${m} />`:a`<${Pe} noun="applications" example="health!=current" columns=${n?Rr:dn} rows=${p}
order="-health" hasCluster=${n} nameOf=${u} tools=${f} empty=${m} narrow=${Qa(n)}
panel=${c=>a`<${Er} row=${c} />`} />`}`}var Qa=e=>(t,n,s)=>a`
<span class="narrow__main">
<a class="row-link" href=${s} tabindex="-1">${ee({text:t.name})}</a>
${t.health&&ae({state:t.health})}
</span>
<span class="narrow__more"><span class="muted">${[e&&t.cluster,t.namespace,t.version].filter(Boolean).join(" · ")}</span><span class="muted">${$s(t).join("/")}</span></span>`;function Fr(){return a`
<${Q} title="Applications"><p class="muted">Workloads that belong together, and the version of each.</p><//>
<${fn} clusters=${He()} />`}var el=["cluster","group","kind","namespace","name","state","health","reason","version","object","message","os","architecture","type","owner","node","schedule"],tl=["ready","wanted","restarts","count"],nl=["images","addresses","ports","pressures"],sl=["labels","capacity","selector"];function Dr(e){let t={...e};for(let n of el)t[n]!==void 0&&typeof t[n]!="string"&&(t[n]=_s(t[n]));for(let n of tl)t[n]!==void 0&&typeof t[n]!="number"&&delete t[n];for(let n of nl)t[n]!==void 0&&(t[n]=Array.isArray(t[n])?t[n].map(_s):[]);for(let n of sl){if(t[n]===void 0)continue;let s=typeof t[n]=="object"&&t[n]!==null&&!Array.isArray(t[n]);t[n]=Object.fromEntries(s?Object.entries(t[n]).map(([o,r])=>[o,_s(r)]):[])}return t}function _s(e){return typeof e=="string"?e:typeof e=="number"||typeof e=="boolean"?`${e}`:""}var Ir=new WeakMap;function vs(e,t){let n=Ir.get(e);return n||(n={...Dr(e),key:t??[e.cluster,e.group,e.kind,e.namespace,e.name].join("/"),createdAt:sn(e.created),sinceAt:sn(e.since),lastAt:sn(e.last)},Ir.set(e,n)),n}function Me(e){let t=[],n=[];for(let[s,o]of e)s.startsWith("cluster/")?n.push(o):typeof o=="object"&&o!==null&&t.push(vs(o,s));return{objects:t,incomplete:n,isCut:e.get("more")===!0}}var Br=new WeakMap;function Re(e){let t=new Map;for(let n of e){let s=[n.cluster,n.namespace,n.object,n.reason].join("/"),o=t.get(s);o?o.push(n):t.set(s,[n])}return[...t].map(([n,s])=>{s.sort((d,u)=>u.lastAt-d.lastAt);let o=s[0],r=Br.get(o);if(r&&r.members.length===s.length&&s.every((d,u)=>r.members[u]===d))return r;let[i="",l=""]=String(o.object??"").split("/"),p={...o,key:n,members:s,objectKind:i,objectName:l,count:s.reduce((d,u)=>d+(u.count??1),0),firstAt:s[s.length-1].lastAt};return Br.set(o,p),p})}var ol=[["bad","failed"],["progress","in progress"],["ok","current"]];function mn({shares:e,name:t,isOld:n=!1,tab:s,linkTo:o}){if(!e)return a`<span class="muted">–</span>`;if(!e.total)return a`<span class="bar bar--empty" title="no workloads"></span>`;let r=ol.filter(([i])=>e[i]);return a`
<span class=${`bar ${n?"bar--old":""}`}>
${r.map(([i])=>a`<span class=${`bar__share bar__share--${i}`} key=${i}
style=${{flexGrow:e[i]}}></span>`)}
<span class="bar__links">${r.map(([i,l])=>a`
<a class="bar__link" key=${i} href=${o(l)} tabindex=${s} style=${{flexGrow:e[i]}}
aria-label=${`${t}: ${e[i]} of ${e.total} ${l}`}
title=${`${e[i]} of ${e.total} ${l}`}></a>`)}</span>
</span>`}function lt({labels:e,most:t=99,tab:n,inFleet:s=!1}){let o=Object.entries(e);if(!o.length)return null;let r=o.slice(0,t),i=o.length-r.length;return a`
<span class="labels">
${r.map(([l,p])=>a`
<a class="chip" key=${l} tabindex=${n}
href=${rl(`${l}=${Qn(p)}`,s)} title=${`${l}=${p}`}>
<span class="chip__key">${il(l)}</span>${p||'""'}
</a>`)}
${i>0&&a`<span class="chip chip--more" title=${o.slice(t).map(([l,p])=>`${l}=${p}`).join(`
`)}>+${i}</span>`}
</span>`}function rl(e,t){if(t)return _e(`${M}/fleet`,{q:e});let n=L.value.params.get("q")??"",s=n.split(" ").filter(Boolean);return U({q:s.includes(e)?n:[...s,e].join(" "),open:null})}function il(e){return e.slice(e.lastIndexOf("/")+1)}var al=[["nodes","nodes"],["deployments","workloads"],["statefulsets","workloads"],["daemonsets","workloads"],["jobs","workloads"],["cronjobs","workloads"],["pods","problems"],["services","services"],["namespaces","problems"]],ll={nodes:"Node",deployments:"Deployment",statefulsets:"StatefulSet",daemonsets:"DaemonSet",jobs:"Job",cronjobs:"CronJob",pods:"Pod",services:"Service",namespaces:"Namespace"},Ur=8;function Hr({name:e,cluster:t}){return a`
<div class="cards">
<div class="cards__column">
<${cl} name=${e} /><${pl} name=${e} />
</div>
<div class="cards__column">
<${ul} name=${e} cluster=${t} /><${dl} name=${e} cluster=${t} />
</div>
</div>`}function hn({title:e,href:t,more:n,children:s}){return a`
<section class="card" aria-label=${e}>
<header class="card__head"><h2>${e}</h2>${t&&n&&a`<a href=${t}>${n}</a>`}</header>
${s}
</section>`}function gs(e,t){let n=Se({channel:"ClusterChannel",cluster:e,view:t}),s=n.version.value;return{objects:C(()=>Me(n.rows).objects,[n,s]),isLoading:n.state.value==="loading"}}function cl({name:e}){let{objects:t,isLoading:n}=gs(e,"problems"),s=an(t,{column:at,direction:-1}).slice(0,Ur);return a`
<${hn} title="Problems" href=${T(e,"problems")} more=${t.length?`all ${t.length}`:""}>
${n&&!t.length&&a`<${ne} rows=${3} />`}
${!n&&!t.length&&a`<div class="card__body muted">Each object has reached the state of its specification.</div>`}
<ul class="lines">${s.map(o=>a`
<li key=${o.key}><a class="line" href=${T(e,"problems",{open:qe(o)})}>
<span class="line__what"><${ee} text=${o.name} /></span>
<span class=${Be(o)==="bad"?"number--bad":"muted"}>${o.state}</span>
<span class="line__why">${o.kind}${o.namespace&&` in ${o.namespace}`}, <${H} at=${o.sinceAt} />${o.reason?` · ${o.reason}`:""}</span></a></li>`)}
</ul>
<//>`}function ul({name:e,cluster:t}){let n=t?.summary,s=al.filter(([o])=>n?.[o]);return a`
<${hn} title="Objects">
<div class="card__body">
${s.length?a`
<dl class="kinds">${s.map(([o,r])=>{let{total:i,states:l}=n[o],p={ok:0,progress:0,bad:0,total:i};for(let[f,c]of Object.entries(l??{}))p[Je(f)]+=Number(c);let d=`kind=${ll[o]}`,u=r===o,m=Object.entries(l??{}).map(([f,c])=>`${c} ${f}`).join(", ");return a`
<div key=${o} title=${m}><dt><a href=${T(e,r,u?{}:{q:d})}>${o}</a></dt>
<dd>${i}</dd>
<dd>${i>0&&a`<${mn} shares=${p} name=${o} isOld=${t?.state!=="live"}
linkTo=${f=>T(e,r,{q:[!u&&d,`health=${f.includes(" ")?`"${f}"`:f}`].filter(Boolean).join(" ")})} />`}</dd></div>`})}</dl>`:a`<p class="muted">The numbers of objects are visible to users who may list them in all namespaces.</p>
<${Te} text="kubectl auth can-i list pods --all-namespaces" />`}
</div>
<//>`}function pl({name:e}){let{objects:t,isLoading:n}=gs(e,"events"),s=Re(t).sort((o,r)=>r.lastAt-o.lastAt).slice(0,Ur);return a`
<${hn} title="Warnings" href=${T(e,"events")} more=${s.length?"all":""}>
${n&&!t.length&&a`<${ne} rows=${3} />`}
${!n&&!t.length&&a`<div class="card__body muted">None within the last hour.</div>`}
<ul class="lines">${s.map(o=>a`
<li key=${o.key}><a class="line" href=${T(e,"events",{open:qe(o)})}>
<span class="line__what"><${ee} text=${o.object??""} /></span>
<span class="muted">${o.count>1&&`×${o.count} · `}<${H} at=${o.lastAt} /></span>
<span class="line__why">${o.reason}: ${o.message}</span></a></li>`)}
</ul>
<//>`}function dl({name:e,cluster:t}){let{objects:n}=gs(e,"kinds"),s=n.filter(o=>o.state!=="synced"&&!/has no kind/.test(o.reason??""));return a`
<${hn} title="About">
<div class="card__body">
<dl class="facts">
<div><dt>Data</dt><dd>${t?.state==="live"?"now":t?.lastSeen?a`<${H} at=${t.lastSeen} suffix=" ago" />`:"–"}</dd></div>
${t?.kubernetesVersion&&a`<div><dt>Kubernetes</dt><dd>${t.kubernetesVersion}</dd></div>`}
${t?.agentkVersion&&a`<div><dt>agentk</dt><dd>${t.agentkVersion}</dd></div>`}
${t&&Object.keys(t.labels).length>0&&a`
<div><dt>Labels</dt><dd><${lt} labels=${t.labels} inFleet=${!0} /></dd></div>`}
${s.map(o=>a`
<div key=${o.key}><dt>${o.kind}</dt><dd>${o.state==="count_only"?"only counted":o.state}${o.reason?`: ${o.reason}`:""}</dd></div>`)}
</dl>
<${Te} text=${Ce`kasctl problems --clusters ${e}`} />
</div>
<//>`}var bs=new Set(["Deployment","StatefulSet","DaemonSet","Job","CronJob"]);function ct({row:e,tab:t}){let n=e.kind==="Event",s=n?e.objectKind:e.kind,o=n?e.objectName:e.name;return a`
<${ot} title=${o} kind=${s} link=${t?"":T(e.cluster)}>
<section class="panel__section">
${n?a`<strong>${e.reason}</strong>`:a`<div><${ae} state=${e.state||e.health} health=${e.health} /></div>`}
${(n?e.message:e.reason)&&a`
<p class=${e.health==="failed"?"message message--bad":"message"}>${n?e.message:e.reason}</p>`}
<${fl} row=${e} isEvent=${n} />
</section>
${e.labels&&Object.keys(e.labels).length>0&&a`
<section class="panel__section"><h3>Labels</h3><${lt} labels=${e.labels} /></section>`}
${bs.has(s)&&a`<${ml} row=${e} kind=${s} name=${o} />`}
<${hl} cluster=${e.cluster} namespace=${e.namespace} kind=${s} name=${o} />
<${$l} kind=${s} namespace=${e.namespace} name=${o} />
<//>`}function fl({row:e,isEvent:t}){let n=[["Cluster",a`<a href=${T(e.cluster)}>${e.cluster}</a>`],["Namespace",e.namespace],["Since",e.sinceAt>0&&a`<${H} at=${e.sinceAt} suffix=" ago" /><span class="muted"><${on}
at=${e.sinceAt} /></span>`],["Last",e.lastAt>0&&a`<${H} at=${e.lastAt} suffix=" ago" /><span class="muted"><${on}
at=${e.lastAt} /></span>`],["Count",t&&e.count],["Ready",pn(e)],["Schedule",e.schedule&&a`<code>${e.schedule}</code>${e.suspended&&a`<span>suspended</span>`}`],["Restarts",e.restarts>0&&e.restarts],["Owner",e.owner],["Node",e.node],["Type",e.type],["Ports",e.ports?.join(", ")],["Version",e.version],["System",[e.os,e.architecture].filter(Boolean).join(", ")],["Capacity",e.capacity&&Object.entries(e.capacity).map(([s,o])=>`${s} ${o}`).join(", ")],["Pressure",e.pressures?.join(", ")],["Created",e.createdAt>0&&a`<${H} at=${e.createdAt} suffix=" ago" /><span class="muted"><${on}
at=${e.createdAt} /></span>`]];return a`
<dl class="facts">
${n.filter(([,s])=>s).map(([s,o])=>a`
<div key=${s}><dt>${s}</dt><dd>${o}</dd></div>`)}
${[...e.images??[]].map(s=>a`
<div key=${s}><dt>Image</dt><dd><code>${s}</code><${ve} text=${s} label="image" /></dd></div>`)}
${[...e.addresses??[]].map(s=>a`
<div key=${s}><dt>Address</dt><dd><code>${s}</code><${ve} text=${s} label="address" /></dd></div>`)}
${e.selector&&a`<div><dt>Selector</dt><dd><code>${Object.entries(e.selector).map(([s,o])=>`${s}=${o}`).join(",")}</code></dd></div>`}
</dl>`}function ml({row:e,kind:t,name:n}){let s=Se({channel:"ClusterChannel",cluster:e.cluster,view:"problems"});s.version.value;let o=t==="Deployment"?`ReplicaSet/${n}-`:t==="CronJob"?`Job/${n}-`:`${t}/${n}`,{objects:r}=Me(s.rows),i=r.filter(l=>l.kind==="Pod"&&l.namespace===e.namespace&&(o.endsWith("-")?l.owner?.startsWith(o):l.owner===o));return i.length?a`
<section class="panel__section"><h3>Pods with problems (${i.length})</h3>
${i.slice(0,10).map(l=>a`
<div class="event" key=${l.key}>
<span class="event__line"><a href=${T(l.cluster,"problems",{open:qe(l)})}>${l.name}</a>
<span class="muted"><${H} at=${l.sinceAt} /></span></span>
<p>${[l.state,l.reason,l.restarts&&`${l.restarts} restarts`].filter(Boolean).join(" · ")}</p>
</div>`)}
</section>`:null}function hl({cluster:e,namespace:t,kind:n,name:s}){let o=Se({channel:"EventsChannel",clusters:[e],namespace:t});o.version.value;let{objects:r}=Me(o.rows),i=`${n}/${s}`,l=Re(r.filter(p=>{let d=String(p.object??"");return d===i||bs.has(n)&&d.slice(d.indexOf("/")+1).startsWith(`${s}-`)&&/^(?:Pod|ReplicaSet|Job)\//.test(d)})).sort((p,d)=>d.lastAt-p.lastAt);return a`
<section class="panel__section"><h3>Warnings</h3>
${o.state.value==="refused"&&a`<p class="muted">not available: ${o.reason.value}</p>`}
${o.state.value==="live"&&!l.length&&a`<p class="muted">none in the last hour</p>`}
${l.slice(0,20).map(p=>a`
<div class="event" key=${p.key}>
<span class="event__line"><span><strong>${p.reason}</strong>${p.count>1&&a` <span class="muted">×${p.count}</span>`}</span><span class="muted"><${H} at=${p.lastAt} /></span></span>
<p>${p.object!==i&&a`${p.object}: `}${p.message}</p>
</div>`)}
</section>`}function $l({kind:e,namespace:t,name:n}){let s=e.toLowerCase(),o=[t?Ce`kubectl -n ${t} describe ${s} ${n}`:Ce`kubectl describe ${s} ${n}`];e==="Pod"?o.push(Ce`kubectl -n ${t} logs ${n} --all-containers --previous`):bs.has(e)&&e!=="CronJob"&&o.push(Ce`kubectl -n ${t} logs ${s}/${n} --since=10m`);let r=o.filter(Boolean);return r.length?a`
<section class="panel__section"><h3>kubectl</h3>
${r.map(i=>a`<${Te} key=${i} text=${i} />`)}
</section>`:null}var ys=[["","Overview",[]],["workloads","Workloads",gt],["nodes","Nodes",["nodes"]],["services","Services",["services"]],["problems","Problems",[]],["events","Events",["events"]],["applications","Applications",[]]],_l={workloads:["No workloads","Deployments, StatefulSets, DaemonSets, Jobs and CronJobs appear here."],nodes:["No nodes","Nodes appear here as soon as they join the cluster."],services:["No Services","Services appear here with their ports and addresses."],problems:["No problems","Each object has reached the state of its specification."],events:["No warnings","The cluster has written no warning within the last hour."]},vl={workloads:"kind=Deployment name~api",nodes:"state!=Ready",services:"type=LoadBalancer",problems:"kind!=Pod",events:"reason=BackOff"};function Wr({name:e,tab:t}){let n=Co.value.get(e),s=!!n||!$e.value.isComplete;N(()=>{s&&co(e)},[e,s]);let o=Le.value.includes(e),r=!n&&(fe().state.value==="loading"||!$e.value.isLoaded);return a`
<${Q} title=${e} above=${a`<a class="heading__above" href=${`${M}/fleet`}>Fleet</a>`} actions=${a`
${n&&a`<${Tt} state=${n.state} />`}
<${ve} text=${e} label="name of the cluster" />
<button type="button" class="icon-button" aria-pressed=${o} aria-label="pin" title=${o?"unpin":"pin"}
onClick=${()=>uo(e)}><${A} name="pin" /></button>`} />
<nav class="tabs" aria-label="views of the cluster">
${ys.map(([i,l,p])=>a`
<a key=${i} href=${T(e,i)} aria-current=${i===t?"page":null}>${l}
<${kl} cluster=${n} id=${i} kinds=${p} /></a>`)}
</nav>
${n&&a`<${wl} cluster=${n} />`}
${r?a`<${ne} />`:a`<${gl} key=${t} name=${e} tab=${t} cluster=${n} />`}`}function gl({name:e,tab:t,cluster:n}){return n?.state==="never"?a`
<${V} icon="circleDashed" title="This cluster has never sent data">
<p>Is the module <code>cluster_data</code> enabled in its agentk? This command installs an agentk with it:</p>
<${Te} text=${Ce`kasctl agent install ${e} --context CONTEXT --module cluster_data`} />
<//>`:n?.state==="denied"?a`
<${V} icon="ban" title="You have no access to this cluster">
<p>Ask an administrator of kas for access to the agent ${e}. To look at your own access:</p>
<p class="command"><code>kasctl user list</code></p>
<//>`:t?t==="applications"?a`<${fn} clusters=${[e]} />`:Object.hasOwn(We,t)?a`<${bl} name=${e} tab=${t} cluster=${n} />`:a`<${V} icon="search" title="This view does not exist" />`:a`<${Hr} name=${e} cluster=${n} />`}function bl({name:e,tab:t,cluster:n}){let s=Se({channel:"ClusterChannel",cluster:e,view:t}),o=s.version.value,{rows:r,isCut:i}=C(()=>{let c=Me(s.rows);return{rows:t==="events"?Re(c.objects):c.objects,isCut:c.isCut}},[s,o,t]),l=s.state.value;if(l==="loading"&&!r.length)return a`<${ne} />`;if(l==="refused"&&!r.length)return a`<${se} what=${t} status=${s.status.value} message=${s.reason.value} since=${s.since.value}
retryAt=${s.retryAt.value} retry=${()=>s.retry()} />`;let p=(ys.find(([c])=>c===t)??ys[0])[2],d=n?.state==="live"?p.filter(c=>!n.summary?.[c]):[],[u,m]=_l[t],f=t==="events"?"last":t==="services"?"name":"-trouble";return a`
${i&&a`<div class="notice notice--warning">The list has the first 5000 rows only.</div>`}
<${Pe} noun=${t} columns=${We[t]} rows=${r} order=${f} hidden=${yl}
example=${vl[t]} panel=${c=>a`<${ct} row=${c} tab=${t} />`}
empty=${d.length===p.length&&p.length?a`<${br} cluster=${e} resources=${d} />`:a`<${V} title=${u}><p>${m}</p><//>`} />`}var yl=[at];function kl({cluster:e,id:t,kinds:n}){let s=t==="problems"?e?.problems:n.length&&t!=="events"?Ze(e?.summary,n)?.total:null;return s?a`<span class="tabs__count">${s}</span>`:null}function wl({cluster:e}){if(e.state!=="late"&&e.state!=="offline")return null;xe.value;let t=e.lastSeen?te(w()-e.lastSeen):"";return a`
<div class="notice notice--warning"><${A} name=${e.state==="late"?"clock":"cloudOff"} />
<span>${e.state==="late"?"agentk is connected, and sends no data at the moment.":"agentk is not connected."}
${t&&` All rows are the state of ${t} ago.`}</span></div>`}var[xl,Sl,Al,...Cl]=We.events,Tl=[xl,Sl,Al,it,...Cl];function qr(){let e=Se({channel:"EventsChannel",clusters:He()}),t=e.version.value,{rows:n,incomplete:s,isCut:o}=C(()=>{let i=Me(e.rows);return{...i,rows:Re(i.objects)}},[e,t]),r=e.state.value;return a`
<${Q} title="Events"><p class="muted">Warnings of all clusters, one row for each object and reason.</p><//>
${r==="loading"&&!n.length&&a`<${ne} label="loading events" />`}
${r==="refused"&&!n.length&&a`<${se} what="events" status=${e.status.value}
message=${e.reason.value} since=${e.since.value} retryAt=${e.retryAt.value} retry=${()=>e.retry()} />`}
${(r==="live"||n.length>0)&&a`
<${et} incomplete=${s} isCut=${o} />
<${Pe} noun="events" example="reason=BackOff" columns=${Tl} rows=${n} order="last" hasCluster=${!0}
panel=${i=>a`<${ct} row=${i} tab="" />`}
empty=${a`<${V} title="No warnings"><p>No cluster has written a warning within the last hour.</p><//>`} />`}`}var Vr={offline:4,late:3,never:2,denied:1,live:0};function Ml(e){let t=(e.workloads?.bad??0)+3*(e.nodes?.bad??0);return(Vr[e.state]??0)*1e9+t*1e4+Math.min(9999,e.problems??0)}var El=e=>t=>T(e.name,"workloads",{q:`health=${t.includes(" ")?`"${t}"`:t}`});function Ot(e){return e?e.bad?`${e.total-e.bad}/${e.total}`:`${e.total}`:""}function ks(e,t){return e.state!=="live"?"number muted":t?"number number--bad":"number"}function Ol(e,t){return e.problems===null?a`<span class="muted">–</span>`:e.problems?a`<a class=${ks(e,!!(e.workloads?.bad||e.nodes?.bad))} tabindex=${t}
href=${T(e.name,"problems")}>${e.problems}</a>`:a`<span class="muted">0</span>`}var Gr={id:"worst",title:"",width:"0",text:()=>"",value:Ml},ut=[{id:"state",title:"State",width:"6.5rem",text:e=>e.state,value:e=>Vr[e.state],cell:e=>Tt({state:e.state}),largestFirst:!0},{id:"name",title:"Name",width:"minmax(9rem, 1.6fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>ee({text:e.name})},{id:"health",title:"Health",width:"9rem",least:760,noFilter:!0,text:e=>e.workloads?`${e.workloads.ok}/${e.workloads.total}`:"",value:e=>e.workloads?.total?e.workloads.bad/e.workloads.total:null,largestFirst:!0,cell:(e,t)=>mn({shares:e.workloads,name:`workloads of ${e.name}`,isOld:e.state!=="live",tab:t,linkTo:El(e)})},{id:"nodes",title:"Nodes",width:"5rem",align:"end",noFilter:!0,text:e=>Ot(e.nodes),value:e=>e.nodes?.total,largestFirst:!0,cell:(e,t)=>Kr(e,e.nodes,T(e.name,"nodes"),t)},{id:"workloads",title:"Workloads",width:"6.5rem",align:"end",noFilter:!0,text:e=>Ot(e.workloads),value:e=>e.workloads?.total,largestFirst:!0,cell:(e,t)=>Kr(e,e.workloads,T(e.name,"workloads"),t)},{id:"problems",title:"Problems",width:"5.75rem",align:"end",noFilter:!0,text:e=>e.problems===null?"":`${e.problems}`,value:e=>e.problems,largestFirst:!0,cell:Ol},{id:"kubernetes",title:"Kubernetes",width:"6.5rem",least:900,text:e=>e.kubernetesVersion,value:e=>e.kubernetesVersion},{id:"agentk",title:"agentk",width:"6rem",least:1240,text:e=>e.agentkVersion,value:e=>e.agentkVersion},{id:"labels",title:"Labels",width:"minmax(8rem, 1.4fr)",least:1e3,noFilter:!0,text:e=>Object.entries(e.labels).map(([t,n])=>`${t}=${n}`).join(" "),value:e=>Object.keys(e.labels).length,cell:(e,t)=>lt({labels:e.labels,most:3,tab:t})},{id:"age",title:"Data",width:"5.5rem",align:"end",noFilter:!0,largestFirst:!0,text:e=>e.state==="live"?"now":e.lastSeen?`${e.lastSeen}`:"",value:e=>e.state==="live"?0:e.lastSeen?w()-e.lastSeen:null,cell:jl},{id:"nodes-bad",title:"Broken nodes",width:"0",isHidden:!0,noFilter:!0,text:e=>`${e.nodes?.bad??0}`,value:e=>e.nodes?.bad??0},{id:"workloads-bad",title:"Failed workloads",width:"0",isHidden:!0,noFilter:!0,text:e=>`${e.workloads?.bad??0}`,value:e=>e.workloads?.bad??0}];function Kr(e,t,n,s){return t?a`<a class=${ks(e,t.bad>0)} href=${n} tabindex=${s}>${Ot(t)}</a>`:a`<span class="muted" title="you may not list these in all namespaces">–</span>`}function jl(e){return e.state==="live"?a`<span class="muted">now</span>`:e.lastSeen?a`<${H} at=${e.lastSeen} />`:a`<span class="muted">–</span>`}function zr(e,t,n){let s=e.lastSeen?te(w()-e.lastSeen):"",o=[e.nodes&&`${Ot(e.nodes)} nodes`,e.workloads&&`${Ot(e.workloads)} workloads`,e.state!=="live"&&s&&`data ${s} old`].filter(Boolean);return a`
<span class="narrow__main">
<a class="row-link" href=${n} tabindex="-1">${ee({text:e.name})}</a>
${Tt({state:e.state})}
</span>
<span class="narrow__more">
<span class="muted">${o.join(" · ")||"no data"}</span>
${e.problems!==null&&e.problems>0&&a`<a class=${ks(e,!0)} tabindex=${t}
href=${T(e.name,"problems")}>${e.problems} ${e.problems===1?"problem":"problems"}</a>`}
</span>`}var Nl=[Gr],$n=e=>_e(`${M}/fleet`,{q:e});function Jr(){let e=fe(),t=Ae.value,{error:n,isLoaded:s,isComplete:o,reason:r,since:i}=$e.value,{found:l,items:p,sort:d,terms:u,query:m,group:f}=st(t,ut,"-worst",Nl),c=!t.length&&(e.state.value==="loading"||!s&&!n),h=e.state.value==="refused";return a`
<${Q} title="Fleet"><${Ll} /><//>
${t.length>0&&h&&a`<${Rl} feed=${e} />`}
${!o&&a`<${Fl} reason=${r} />`}
${c&&a`<${ne} label="loading clusters" />`}
${!c&&!t.length&&(n||h)&&a`
<${se} what="Clusters" status=${n?.status??e.status.value} message=${n?.message??e.reason.value}
since=${n?i:e.since.value} retryAt=${e.retryAt.value} retry=${()=>{Ct(),h&&e.retry()}} />`}
${!c&&!t.length&&!n&&!h&&o&&a`
<${V} icon="server" title="No clusters yet">
<p>Add an agent, and install agentk in its cluster with one command:</p>
<p class="command"><code>kasctl agent install NAME --context CONTEXT</code></p>
<//>`}
${t.length>0&&a`
<section class="list" aria-label="clusters">
<${nt} columns=${ut} rows=${t} hits=${l.length} total=${t.length} noun="clusters"
example="env=prod state!=live">
<${Pl} rows=${t} group=${f} />
<${tt} name="clusters" columns=${ut} rows=${l} />
<//>
<${ln} label="clusters" columns=${ut} items=${p} sort=${d} query=${m}
link=${v=>T(v.name)} openKey=""
rowTitle=${v=>({title:v.name,detail:v.state})} narrow=${zr} />
${!l.length&&a`<${Qe} terms=${u} columns=${ut} rows=${t} noun="clusters" />`}
</section>`}`}var _n=e=>e.toLocaleString("en");function Ll(){let e=nn.value;if(!e.clusters)return a`<p class="totals"> </p>`;let t=["late","offline","never","denied"].filter(n=>e[n]);return a`
<dl class="totals">
<div><dt>clusters</dt><dd><a href=${`${M}/fleet`}>${_n(e.clusters)}</a></dd>
<dd class="totals__more"><a href=${$n("state=live")}>${e.live} live</a>
${t.map(n=>a`
<a key=${n} class="totals__warn" href=${$n(`state=${n}`)}>${e[n]} ${n}</a>`)}</dd></div>
<div><dt>nodes</dt><dd><a href=${_e(`${M}/fleet`,{sort:"-nodes"})}>${_n(e.nodes)}</a></dd>
<dd class="totals__more">${e.brokenNodes?a`<a class="totals__bad" href=${$n("nodes-bad>0")}>${e.brokenNodes} not ready</a>`:"all ready"}</dd></div>
<div><dt>workloads</dt><dd><a href=${_e(`${M}/fleet`,{sort:"-workloads"})}>${_n(e.workloads)}</a></dd>
<dd class="totals__more">${e.brokenWorkloads?a`<a class="totals__bad" href=${$n("workloads-bad>0")}>${e.brokenWorkloads} failed</a>`:"none failed"}</dd></div>
<div><dt>problems</dt><dd><a href=${`${M}/problems`}>${_n(e.problems)}</a></dd>
<dd class="totals__more">${e.problems?`in ${e.troubled} ${e.troubled===1?"cluster":"clusters"}`:"everything is as specified"}${e.oldProblems?`, ${e.oldProblems} of old data`:""}</dd></div>
</dl>`}function Pl({rows:e,group:t}){let n=wr(e);return!n.length&&!t?null:a`
<label class="select"><span>Group by</span>
<select value=${t} onChange=${o=>R(U({group:o.target.value||null}))}>
<option value="">no group</option>
${[...new Set([...n,...t?[t]:[]])].map(o=>a`<option key=${o} value=${o}>${o}</option>`)}
</select></label>`}function Rl({feed:e}){return a`<div class="notice notice--warning"><span>kas sends no changes: ${e.reason}</span>
<button type="button" class="button" onClick=${()=>e.retry()}>Retry now</button></div>`}function Fl({reason:e}){function t(n){n.preventDefault();let s=new FormData(n.target).get("name");typeof s=="string"&&s.trim()&&R(T(s.trim()))}return a`
<form class="notice open-cluster" onSubmit=${t}>
<p>${e||"kas cannot list all your clusters."} The list has the clusters that you opened here.</p>
<label>Open a cluster <input name="name" type="text" autocomplete="off" required placeholder="name of its agent" /></label>
<button type="submit" class="button button--primary">Open</button>
</form>`}function Zr({part:e}){let t=q(null),[n,s]=j(""),[o,r]=j(0),[i]=j(w());return N(()=>{let l,p=!1;return Dl(e.style),import(e.script).then(d=>{p||!t.current||(l=d.mount(t.current,{user:I.user,csrf:I.csrf,getJson:Y,go:R,clusterAddress:T}))}).catch(d=>s(String(d))),()=>{p=!0,typeof l=="function"&&l()}},[e,o]),a`
<${Q} title=${e.title} />
${n&&a`<${se} what=${e.title} status=${500} message=${n} since=${i} retry=${()=>{s(""),r(o+1)}} />`}
<div ref=${t}></div>`}function Dl(e){if(!e||document.querySelector(`link[href="${CSS.escape(e)}"]`))return;let t=document.createElement("link");t.rel="stylesheet",t.href=e,document.head.append(t)}var Yr=3e3,Xr=3e4,Il=50,Ke=S({rows:null,incomplete:[],missingKas:0,isCut:!1,error:null,since:w(),retryAt:0}),xs=new Map,vn=0,Ss=0,ws=!1;async function bn(){xs=new Map(Ae.peek().map(e=>[e.name,e.source])),await Qr(()=>Vn("/api/v1/problems",{clusters:He().join(",")}),()=>!0)}async function Qr(e,t){if(!ws){ws=!0,clearTimeout(Ss);try{let n=await e(),s=Ke.peek();Ke.value={rows:[...(s.rows??[]).filter(o=>!t(o.cluster)),...n.items],incomplete:[...s.incomplete.filter(o=>!t(o.name)),...n.incomplete],missingKas:n.missingKas,isCut:n.isCut,error:null,since:w(),retryAt:0},gn(Yr)}catch(n){Ke.value={...Ke.peek(),error:n,since:w(),retryAt:w()+Xr/1e3},gn(Xr)}finally{ws=!1}}}function gn(e){clearTimeout(Ss),vn&&(Ss=setTimeout(Bl,e))}function Bl(){if(!vn)return;if(Ke.peek().rows===null){bn();return}let e=document.hidden?[]:Ae.peek().filter(n=>xs.get(n.name)!==n.source).slice(0,Il);if(!e.length){gn(Yr);return}for(let n of e)xs.set(n.name,n.source);let t=new Set(e.map(n=>n.name));Qr(()=>Vn("/api/v1/problems",{clusters:[...t].join(",")}),n=>t.has(n))}function ei(){return N(()=>(fe(),vn+=1,Ke.peek().rows===null?bn():gn(0),()=>{vn-=1}),[]),Ke.value}var[Ul,Hl,...Wl]=We.problems,ql=[Ul,Hl,it,...Wl],Kl=[at];function ti(){let{rows:e,incomplete:t,missingKas:n,isCut:s,error:o,since:r,retryAt:i}=ei(),l=C(()=>(e??[]).map(p=>vs(p)),[e]);return a`
<${Q} title="Problems"><p class="muted">Objects that have not reached the state of their specification.</p><//>
${!e&&o&&a`<${se} what="problems" status=${o.status} message=${o.message} since=${r}
retryAt=${i} retry=${bn} />`}
${!e&&!o&&a`<${ne} label="loading problems" />`}
${e&&a`
${o&&a`<div class="notice notice--warning">The rows are old: ${o.message}</div>`}
<${et} incomplete=${t} missingKas=${n} isCut=${s} />
<${Pe} noun="problems" example="kind!=Pod cluster~eu" columns=${ql} rows=${l}
order="-trouble" hidden=${Kl} hasCluster=${!0}
panel=${p=>a`<${ct} row=${p} tab="" />`}
empty=${a`<${V} title="No problems"><p>Each object that you may see has reached the state of its
specification.</p><p><a href=${`${M}/fleet`}>All clusters</a></p><//>`} />`}`}var yn=class extends ue{state={error:null,since:0};componentDidCatch(t){this.setState({error:t,since:w()})}render({children:t},{error:n,since:s}){return n===null?t:a`<${se} what="This page" status=${-1} message=${String(n)} since=${s}
retry=${()=>this.setState({error:null})} />`}};function kn({label:e,class:t="",onClose:n,children:s}){let o=q(null);N(()=>{let i=document.activeElement;return o.current?.showModal(),()=>{i instanceof HTMLElement&&i.isConnected&&i.focus({preventScroll:!0})}},[]);function r(i){i.target===o.current&&n()}return a`
<dialog ref=${o} class=${`dialog ${t}`} aria-label=${e} onClose=${n} onClick=${r}>
<div class="dialog__inner" tabindex="-1">${s}</div>
</dialog>`}var Vl=[["Anywhere",[["Ctrl K","commands, clusters and objects"],["?","this list"],...Et.map(([e,t])=>[`g ${e}`,t.toLowerCase()])]],["In a list",[["/","filter"],["j k","next and previous row"],["↓ ↑","the same, in the table"],["Enter","open the row"],["Home End","first and last row"]]],["In the filter",[["Space","finish a term"],["↓ Enter","take a completion"],["Backspace","edit the last term"],["Esc","leave"]]],["In the side panel",[["j k","next and previous object"],["Esc","close"]]]];function ni(){return a`
<${kn} label="Keys" class="help" onClose=${()=>{G.value=""}}>
<h2>Keys</h2>
<div class="help__groups" tabindex="0" role="group" aria-label="keys">
${Vl.map(([e,t])=>a`
<section key=${e}>
<h3>${e}</h3>
<dl class="keys">${t.map(([n,s])=>a`
<div key=${s}><dt>${n.split(" ").map(o=>a`<kbd>${o}</kbd>`)}</dt><dd>${s}</dd></div>`)}
</dl>
</section>`)}
</div>
<h3>Filters</h3>
<p>All terms must match. Keys are columns and labels.</p>
<dl class="keys">
<div><dt><code>env=prod,test</code></dt><dd>one of these values</dd></div>
<div><dt><code>state!=live</code></dt><dd>another value</dd></div>
<div><dt><code>name~api</code> <code>name!~api</code></dt><dd>contains, does not contain</dd></div>
<div><dt><code>nodes>3</code></dt><dd>a larger number</dd></div>
<div><dt><code>web</code> <code>-web</code></dt><dd>any column contains, none contains</dd></div>
</dl>
<//>`}var si=50;function Gl(){let e=t=>()=>R(t);return[...Et.map(([t,n,s])=>({kind:"Page",title:n,detail:`g ${t}`,run:e(s)})),...I.parts.map(t=>({kind:"Page",title:t.title,run:e(t.path)})),...["light","dark","system"].filter(t=>t!==Ue.value).map(t=>({kind:"Action",title:`Theme: ${t}`,run:()=>{Ue.value=t}})),ye.value==="compact"?{kind:"Action",title:"Density: comfortable",run:()=>{ye.value="comfortable"}}:{kind:"Action",title:"Density: compact",run:()=>{ye.value="compact"}},pe.value?{kind:"Action",title:"Times: local zone",run:()=>{pe.value=""}}:{kind:"Action",title:"Times: UTC",run:()=>{pe.value="UTC"}},{kind:"Action",title:de.value?"Turn off single-key shortcuts":"Turn on single-key shortcuts",run:()=>{de.value=!de.value}},{kind:"Action",title:"Show all keys",detail:"?",run:()=>{G.value="help"}},{kind:"Action",title:"Sign out",run:()=>{Xt()}}]}function oi(){let[e,t]=j(""),[n,s]=j(0),o=q(null),r=C(()=>{let d=Ae.peek(),u=he.peek(),m=c=>()=>R(T(c)),f=d.filter(c=>!u.includes(c.name));return[...u.map(c=>({kind:"Recent",title:c,detail:"cluster",run:m(c)})),...Gl(),...f.map(({name:c,state:h})=>({kind:"Cluster",title:c,detail:h,run:m(c)})),...(le.peek()?.objects()??[]).map(({title:c,detail:h,href:v})=>({kind:"Object",title:c,detail:h,run:()=>R(v)}))]},[]),i=C(()=>zl(r,e),[r,e]);function l(d){G.value="",d.run()}function p(d){if(d.key==="ArrowDown"||d.key==="ArrowUp"){d.preventDefault();let u=d.key==="ArrowDown"?1:-1,m=i.length?(n+u+i.length)%i.length:0;s(m),o.current?.children[m]?.scrollIntoView({block:"nearest"})}else d.key==="Enter"&&i[n]&&(d.preventDefault(),l(i[n]))}return a`
<${kn} label="Commands" class="palette" onClose=${()=>{G.peek()==="palette"&&(G.value="")}}>
<input class="palette__input" type="text" role="combobox" aria-label="command, cluster or object" autofocus
aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" autocomplete="off" spellcheck="false"
aria-activedescendant=${i.length?`palette-${n}`:null} placeholder="Cluster, object, page or action"
value=${e} onKeyDown=${p} onInput=${d=>{t(d.target.value),s(0)}} />
${i.length?a`<ul class="palette__list" id="palette-list" role="listbox" aria-label="results" ref=${o}>
${i.map((d,u)=>a`
<li key=${`${d.kind}${d.title}${d.detail}`} id=${`palette-${u}`} role="option"
aria-selected=${u===n} class=${ke("palette__item",u===n&&"is-chosen")}
onPointerMove=${()=>s(u)} onClick=${()=>l(d)}>
<span class="palette__kind">${d.kind}</span>
<span class="palette__title">${d.title}</span>
<span class="muted">${d.detail}</span>
</li>`)}
</ul>`:a`<p class="palette__none" id="palette-list" role="status">Nothing is called “${e}”.</p>`}
<//>`}function zl(e,t){let n=t.toLowerCase().split(/\s+/).filter(Boolean);return n.length?e.map(s=>({one:s,rank:Jl(s,n)})).filter(({rank:s})=>s>0).sort((s,o)=>o.rank-s.rank).slice(0,si).map(({one:s})=>s):e.filter(s=>s.kind!=="Object").slice(0,si)}function Jl(e,t){let n=e.title.toLowerCase(),s=`${n} ${e.detail??""} ${e.kind}`.toLowerCase();return t.every(o=>s.includes(o))?n===t[0]?4:n.startsWith(t[0])?3:n.includes(t[0])?2:1:0}var As=S(!1),ri=!1;ie(()=>{let e=xe.value.state==="open";e&&ri||(e&&xe.peek().since>I.now+30&&Zl(),ri=e)});async function Zl(){try{let{build:e}=await Y("/ui/api/session");As.value=e!==I.build}catch{}}function Cs({legend:e,name:t,options:n,chosen:s}){return a`
<fieldset class="choice">
<legend>${e}</legend>
<div class="choice__options">
${n.map(([o,r])=>a`
<label key=${o}><input type="radio" name=${t} checked=${s.value===o}
onChange=${()=>{s.value=o}} /><span>${r}</span></label>`)}
</div>
</fieldset>`}function ii(){return a`
<button type="button" class="nav__item user-button" popovertarget="user-menu" title="settings and user">
<${A} name="circleUser" /><span class="nav__text">${I.user.name||"user"}</span>
</button>
<div id="user-menu" class="user-menu" popover="auto" role="dialog" aria-label="settings and user">
<p class="user-menu__who"><strong>${I.user.name}</strong><span class="muted">signed in with ${I.user.method==="oidc"?"single sign-on":"a token"}</span></p>
<${Cs} legend="Theme" name="theme" chosen=${Ue}
options=${[["system","System"],["light","Light"],["dark","Dark"]]} />
<${Cs} legend="Density" name="density" chosen=${ye}
options=${[["comfortable","Comfortable"],["compact","Compact"]]} />
<${Cs} legend="Times" name="zone" chosen=${pe} options=${[["","Local"],["UTC","UTC"]]} />
<label class="switch"><input type="checkbox" checked=${de.value}
onChange=${e=>{de.value=e.target.checked}} /> Single-key shortcuts</label>
<div class="user-menu__buttons">
<button type="button" class="button" popovertarget="user-menu" popovertargetaction="hide"
onClick=${()=>{G.value="help"}}>Keys</button>
<button type="button" class="button" onClick=${Xt}>Sign out</button>
</div>
</div>`}var Xl=5,Yl=120,Ql=[["fleet","Fleet","server"],["problems","Problems","triangleAlert"],["events","Events","bell"],["applications","Applications","boxes"]];function ec(){let{path:e}=L.value,t=e===M?"fleet":e.slice(M.length+1),{problems:n}=nn.value,s=[...new Set([...Le.value,...he.value])].slice(0,10);return a`
<nav class="nav" aria-label="pages">
<a class="nav__brand" href=${`${M}/fleet`}><${tc} /><span>kas</span></a>
<button type="button" class="nav__search" onClick=${()=>{G.value="palette"}}>
<${A} name="search" /><span class="nav__text">Go to…</span><kbd>Ctrl K</kbd>
</button>
<ul class="nav__list">
${Ql.map(([o,r,i])=>a`
<li key=${o}><a class="nav__item" href=${`${M}/${o}`} aria-current=${t===o?"page":null}>
<${A} name=${i} /><span class="nav__text">${r}</span>
${o==="problems"&&n>0&&a`<span class="nav__count">${n>999?"999+":n}</span>`}
</a></li>`)}
${I.parts.map(o=>a`
<li key=${o.name}><a class="nav__item" href=${o.path} aria-current=${e===o.path?"page":null}>
<${A} name="layers" /><span class="nav__text">${o.title}</span></a></li>`)}
</ul>
${s.length>0&&a`
<div class="nav__known">
<h2>${Le.value.length?"Pinned and recent":"Recent"}</h2>
<ul class="nav__list">${s.map(o=>a`
<li key=${o}><a class="nav__item nav__item--small" href=${T(o)} title=${o}
aria-current=${e.startsWith(T(o))?"true":null}>
<${A} name=${Le.value.includes(o)?"pin":"clock"} size=${14} /><span class="nav__text">${o}</span>
</a></li>`)}
</ul>
</div>`}
<div class="nav__end"><${ii} /></div>
</nav>`}function tc(){return a`
<svg class="logo" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
<path d="M4 2v16M4 11.5 14.5 2M8.5 8 16 18" />
</svg>`}function nc(){return we.value?a`<div class="banner" role="alert"><span>You are signed out. The rows below do not change any more.</span>
<a class="button" href=${bo()}>Sign in</a></div>`:null}function sc(){be.value;let{state:e,since:t}=xe.value,n=w()-t,s=!we.value&&e!=="open"&&n>Xl,o=w()-At.value,r=At.value?`data of ${te(o)} ago`:"no data yet";return a`
<footer class="footer">
<span>kas ${I.version}</span>
<span class=${s?"footer__lost":""}>${s?`no connection to kas for ${te(n)}, reconnecting; ${r}`:e==="open"?`live${At.value&&o>Yl?`, last change ${te(o)} ago`:""}`:"connecting"}</span>
<span>${pe.value||Intl.DateTimeFormat().resolvedOptions().timeZone}</span>
${As.value&&a`<button type="button" class="button button--quiet" onClick=${()=>location.reload()}>
kas was upgraded: reload</button>`}
</footer>`}function ai({children:e}){return a`
<a class="skip" href="#main">Skip to content</a>
<div class="shell">
<${ec} />
<div class="shell__page">
<${nc} />
<main id="main" class="main" tabindex="-1">${e}</main>
<${sc} />
</div>
</div>
<${vr} />`}function oc(){let{path:e}=L.value,t=I.parts.find(r=>r.path===e);if(t)return a`<${Zr} key=${e} part=${t} />`;let[n,s,o=""]=e.slice(M.length+1).split("/").map(rc);switch(n){case"":case"fleet":return a`<${Jr} />`;case"problems":return a`<${ti} />`;case"events":return a`<${qr} />`;case"applications":return a`<${Fr} />`;case"clusters":if(s)return a`<${Wr} key=${s} name=${s} tab=${o} />`;default:return a`
<${Q} title="Not found" />
<${V} icon="search" title="This page does not exist"><p><a href=${`${M}/fleet`}>All clusters</a></p><//>`}}function rc(e){try{return decodeURIComponent(e)}catch{return e}}function ic(){return a`
<${ai}><${yn} key=${L.value.path.split("/").slice(0,4).join("/")}><${oc} /><//><//>
${G.value==="palette"&&a`<${oi} />`}
${G.value==="help"&&a`<${ni} />`}`}Ct();var Ts=document.getElementById("app");Ts&&(Ts.replaceChildren(),jn(a`<${ic} />`,Ts));
