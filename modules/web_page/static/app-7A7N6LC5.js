function $i(){let e=document.getElementById("boot")?.textContent,t={version:"",build:"",now:Date.now()/1e3,user:{name:"",method:""},csrf:"",parts:[]};return e?{...t,...JSON.parse(e)}:t}var I=$i();var O,Rs,An,Ee,xn,Rt,Fs,Lt,Ds,Cn,Sn,_i,pt=Symbol.for("pv"),Ft={},Dt=[],vi=/^m(i|n|o|s|text|space)$/,Tn=Array.isArray,Mn=Dt.slice,Ie=Object.assign;function De(e){e&&e.parentNode&&e.remove()}function It(e,t,n){var s,o,r,i={},l=arguments.length;for(r in t)r=="key"?s=t[r]:r=="ref"&&typeof e!="function"?o=t[r]:i[r]=t[r];return l>2&&(i.children=l>3?Mn.call(arguments,2):n),ut(e,i,s,o,null)}function ut(e,t,n,s,o){var r={type:e,props:t,key:n,ref:s,__k:null,__:null,__b:0,__e:null,__c:null,constructor:pt,__v:o||++Rs,__i:-1,__u:0};return!o&&O.vnode&&O.vnode(r),r}function je(e){return e.children}function ue(e,t){this.props=e,this.context=t,this.__g=0}function Oe(e,t){if(t==null)return e.__&&Oe(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!="function"||e.props.__P?null:Oe(e)}function gi(e){var t,n=e.__v,s=n.__e,o=[],r=[],i=e.__P;i&&((t=Ie({constructor:pt},n)).__v=n.__v+1,O.vnode&&O.vnode(t),En(i,t,n,e.__n,i.namespaceURI,32&n.__u?[s]:null,o,s||Oe(n),32&n.__u,r),t.__v=n.__v,t.__.__k[t.__i]=t,qs(o,t,r),n.__=n.__e=null,t.__e!=s&&Is(t))}function Is(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(function(t){return t&&(e.__e=t.__e)}),Is(e)}function Ls(e){(8&e.__g||(e.__g|=8,Ee.push(e),Rt++))&&xn==O.debounceRendering||((xn=O.debounceRendering)||queueMicrotask)(Bs)}function Bs(){try{for(var e,t=1;Ee.length;)Ee.length>t&&Ee.sort(Fs),e=Ee.shift(),t=Ee.length,8&e.__g&&gi(e)}finally{(Rt=Ee.length)&&(xn||queueMicrotask)(Bs)}}function Us(e,t,n,s,o,r,i,l,p,d,u){var m,f,c,h,y,_,v=s.__k||Dt,g=t.length;for(p=bi(n,t,v,p,g),m=0;m<g;m++)(c=n.__k[m])!=null&&(f=~c.__i&&v[c.__i]||Ft,c.__i=m,_=En(e,c,f,o,r,i,l,p,d,u),h=c.__e,(f.ref!=c.ref||8&f.__u)&&(f.ref&&On(f.ref,null,c,f),c.ref&&u.push(c.ref,c.__c||h,c)),y=y||h,4&c.__u?(p=Hs(c,p,e,!f.__v),f.__e&&(f.__e=null)):typeof c.type=="function"&&_!==void 0?p=_:h&&(p=h.nextSibling),c.__u&=-21);return n.__e=y,p}function bi(e,t,n,s,o){var r,i,l,p,d,u,m,f,c,h=n.length,y=h,_=0,v=0,g=e.__k=Array(o);for(r=0;r<o;r++)(i=t[r])!=null&&typeof i!="boolean"&&typeof i!="function"?(typeof i!="object"||i.constructor===String?i=g[r]=ut(null,i):Tn(i)?i=g[r]=ut(je,{children:i}):i.constructor===pt&&i.__b?i=g[r]=ut(i.type,i.props,i.key,i.ref,i.__v):g[r]=i,p=r+_,i.__=e,i.__b=e.__b+1,l=null,~(d=i.__i=yi(i,n,p,y))&&(y--,(l=n[d])&&(l.__u|=2)),l&&l.__v?(i.__u|=16,d==p-1?_--:d==p+1?_++:d!=p&&(d>p?_--:_++,v=1)):(~d||(o>h?_--:o<h&&_++),typeof i.type!="function"&&(i.__u|=4))):g[r]=null;if(v){for(u=[],m=[],r=0;r<o;r++)if((i=g[r])&&16&i.__u){for(_=0,f=u.length;_<f;)u[c=_+f>>1]<i.__i?_=c+1:f=c;u[_]=i.__i,m[r]=_+1}for(_=u.length;r--;)m[r]&&(m[r]==_?_--:g[r].__u|=4)}if(y)for(r=0;r<h;r++)!(l=n[r])||2&l.__u||(l.__e==s&&(s=Oe(l)),jn(l,l));return s}function Hs(e,t,n,s){var o,r,i,l;if(typeof e.type=="function"){if(e.props.__P)return t;if(o=e.__k)for(r=0;r<o.length;r++)o[r]&&(o[r].__=e,t=Hs(o[r],t,n,!1));return t}for(t&&!t.parentNode&&(t=Oe(e))&&!t.parentNode&&(t=null),i=e.__e,l=t;l&&l.nodeType==8;)l=l.nextSibling;for(i!=l&&(!s&&n.moveBefore&&i.parentNode?n.moveBefore(i,t):n.insertBefore(i,t||null)),t=i;(t=t&&t.nextSibling)&&t.nodeType==8&&!t.data.startsWith("$s"););return t}function yi(e,t,n,s){var o,r=e.key,i=e.type,l=t[n],p=l&&!(2&l.__u);if(l===null&&r==null||p&&r==l.key&&i==l.type)return n;if(s>(p?1:0)){for(o=n-1;o>=0;o--)if((l=t[o])&&!(2&l.__u)&&r==l.key&&i==l.type)return o;for(o=n+1;o<t.length;o++)if((l=t[o])&&!(2&l.__u)&&r==l.key&&i==l.type)return o}return-1}function Ps(e,t,n){n==null&&(n=""),t[0]=="-"?e.setProperty(t,n):e[t]=n}function Nt(e,t,n,s,o){var r,i;if(t=="style")if(typeof n=="string")e.style.cssText=n;else{if(typeof s=="string"&&(e.style.cssText=s=""),s)for(t in s)n&&t in n||Ps(e.style,t);if(n)for(t in n)s&&n[t]==s[t]||Ps(e.style,t,n[t])}else if(t[0]=="o"&&t[1]=="n")typeof n!="function"&&(n=null),typeof s!="function"&&(s=null),(e.__e||(e.__e={}))[t]=n,n&&s||(i=Sn[t]||(Sn[t]=ki(t)),(e.__a||(e.__a={}))[t]=Cn,r=t!=(t=t.replace(Ds,"$1")),(t=t.slice(2))[0]<"a"&&(t=t.toLowerCase()),n?e.addEventListener(t,i,r):e.removeEventListener(t,i,r));else{if(o=="http://www.w3.org/2000/svg")t=t.replace(/xlink(H|:h)/,"h").replace(/sName$/,"s");else if(t!="width"&&t!="height"&&t!="href"&&t!="list"&&t!="form"&&t!="tabIndex"&&t!="download"&&t!="rowSpan"&&t!="colSpan"&&t!="role"&&t!="popover"&&t in e)try{return void(e[t]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&t[4]!="-"?e.removeAttribute(t):e.setAttribute(t,t=="popover"&&n==1?"":n)}}function ki(e){return function(t){var n=this.__e;if(n){if(n=n[e],t[Lt]==null)t[Lt]=Cn++;else if(t[Lt]<this.__a[e])return;return n(O.event?O.event(t):t)}}}function En(e,t,n,s,o,r,i,l,p,d){var u,m,f,c,h,y,_,v,g,E,A,F,le,b,k,z,J,Z,ce=t.type;if(t.constructor!==pt)return null;128&n.__u&&(p=32&n.__u,u=n.__c.__z)&&(t.__u|=p,m=r=[],u.nodeType==8?l=Pt(u,r):r.push(u),l=r[0]||l),(u=O.__b)&&u(t);e:if(typeof ce=="function"){f=i.length;try{if(v=t.props,g=(u=ce.prototype)&&u.render,E=(u=ce.contextType)&&s[u.__c],A=u?E?E.props.value:u.__:s,(c=n.__c)?(t.__c=c,2&c.__g&&(c.__g|=1)):(g?t.__c=c=new ce(v,A):(t.__c=c=new ue(v,A),c.constructor=ce,c.render=xi),E&&E.sub(c),c.state||(c.state={}),c.__n=s,c.__g|=8,c.__h=[],c.__k=[]),g&&(c.__s||(c.__s=c.state),ce.getDerivedStateFromProps&&(c.__s==c.state&&(c.__s=Ie({},c.__s)),Ie(c.__s,ce.getDerivedStateFromProps(v,c.__s)))),h=c.props,y=c.state,c.__v=t,n.__c){if(v!==h&&g&&!ce.getDerivedStateFromProps&&c.componentWillReceiveProps&&c.componentWillReceiveProps(v,A),t.__v==n.__v&&!(8&c.__g)||!(4&c.__g)&&c.shouldComponentUpdate&&c.shouldComponentUpdate(v,c.__s,A)===!1){t.__v!=n.__v&&(c.props=v,c.state=c.__s,c.__g&=-9),t.__e=n.__e,t.__k=n.__k,t.__k.some(function($){$&&($.__=t)}),Dt.push.apply(c.__h,c.__k),c.__k=[],c.__h.length&&i.push(c),l=Oe(n);break e}c.componentWillUpdate&&c.componentWillUpdate(v,c.__s,A),g&&c.componentDidUpdate&&c.__h.push(function(){c.componentDidUpdate(h,y,_)})}else g&&!ce.getDerivedStateFromProps&&c.componentWillMount&&c.componentWillMount(),g&&c.componentDidMount&&c.__h.push(c.componentDidMount);c.context=A,c.props=v,c.__P=e,c.__g&=-5,F=O.__r,le=g?25:0;do c.__g&=-9,F&&F(t),u=c.render(c.props,c.state=c.__s,c.context);while(8&c.__g&&++le<25);g&&(Dt.push.apply(c.__h,c.__k),c.__k=[]),c.state=c.__s,c.getChildContext&&(s=Ie({},s,c.getChildContext())),g&&n.__c&&c.getSnapshotBeforeUpdate&&(_=c.getSnapshotBeforeUpdate(h,y)),b=u&&u.type===je&&u.key==null?u.props.children:u,v.__P&&(u=l,o=(e=v.__P).namespaceURI,p=r=null,n.props&&n.props.__P!=e&&(n.__k.some(function($){$&&jn($,$)}),n.__k=null),l=n.__k?Oe(n,0):null),l=Us(e,Tn(b)?b:[b],t,n,s,o,r,i,l,p,d),v.__P&&(t.__e=null,l=u),t.__u&=-161,m&&m.some(De),c.__h.length&&i.push(c),1&c.__g&&(c.__g&=-4)}catch($){if(i.length=f,t.__v=null,p||r)if($&&$.then){if(t.__u|=128|p,r){for(~(J=r.indexOf(l||void 0))||(J=r.length);(Z=r[J-1])&&Z.nodeType==8;)J--;for(;J<r.length;J++)if(Z=r[J])if(r[J]=null,k){if(Z==z)break}else{if(Z.nodeType!=8)break;Z.data.startsWith("$s")&&(z=Pt(k=Z))}}if(!k){for(;l&&l.nodeType==8&&l.nextSibling;)l=l.nextSibling;k=l}(u=Pt(k=t.__c.__z||(t.__c.__z=k)))?(t.__e=k,l=u):t.__e=l,l=l&&l.nextSibling}else r&&r.some(De);else t.__e=n.__e;t.__k||(t.__k=n.__k||[]),$&&$.then||Ws(t),O.__e($,t,n)}}else l=t.__e=wi(n.__e,t,n,s,o,r,i,p,d,e);return(u=O.diffed)&&u(t),l}function Pt(e,t){if(e&&e.nodeType==8&&e.data.startsWith("$s"))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith("$s"))n++;else if(e.data.startsWith("/$s")&&!--n)return e}t&&t.push(e)}}function Ws(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(Ws))}function qs(e,t,n){for(var s=0;s<n.length;)On(n[s++],n[s++],n[s++]);O.__c&&O.__c(t,e),e.some(function(o){try{e=o.__h,o.__h=[],e.some(function(r){r.call(o)})}catch(r){O.__e(r,o.__v)}})}function wi(e,t,n,s,o,r,i,l,p,d){var u,m,f,c,h,y,_,v,g=n.props||Ft,E=t.props,A=t.type;if(A=="svg"?o="http://www.w3.org/2000/svg":A=="math"?o="http://www.w3.org/1998/Math/MathML":o||(o="http://www.w3.org/1999/xhtml"),r){for(u=0;u<r.length;u++)if((h=r[u])&&(A?h.localName==A:h.nodeType==3)){e=h,r[u]=null;break}}if(!e){if(v=d.ownerDocument||document,!A)return v.createTextNode(E);e=v.createElementNS(o,A,E.is?E:d),l&&(O.__m&&O.__m(t,r),l=!1),r=null}if(A){if(d=A=="template"&&e.content||e,r=A=="textarea"&&E.defaultValue!=null?null:r&&Mn.call(d.childNodes),!l&&r)for(g={},u=0;u<e.attributes.length;u++)g[(h=e.attributes[u]).name]=h.value;for(u in g)h=g[u],u=="dangerouslySetInnerHTML"?f=h:u=="children"||u in E||u=="value"&&"defaultValue"in E||u=="checked"&&"defaultChecked"in E||Nt(e,u,null,h,o);for(u in E)h=E[u],u=="children"?c=h:u=="dangerouslySetInnerHTML"?m=h:u=="value"?y=h:u=="checked"?_=h:l&&typeof h!="function"||g[u]===h||Nt(e,u,h,g[u],o);m?(l||f&&(m.__html==f.__html||m.__html==e.innerHTML)||(e.innerHTML=m.__html),t.__k=[]):(f&&(e.textContent=""),(A=="foreignObject"||o=="http://www.w3.org/1998/Math/MathML"&&vi.test(A))&&(o="http://www.w3.org/1999/xhtml"),Us(d,Tn(c)?c:[c],t,n,s,o,r,i,r?r[0]:n.__k&&Oe(n,0),l,p),r&&r.some(De)),l&&A!="textarea"||(u="value",A=="progress"&&y==null?e.removeAttribute(u):y==null||y===e[u]&&(A!="progress"||y)||Nt(e,u,y,g[u],o),u="checked",_!=null&&_!=e[u]&&Nt(e,u,_,g[u],o))}else g===E||l&&e.data==E||(e.data=E);return e}function On(e,t,n,s){try{typeof e=="function"?t?t.__x=e(t)||1:s&&(s=s.__c||s.__e)&&(t=s.__x)&&(s.__x=null,typeof t=="function"?t():e(null)):e.current=t}catch(o){O.__e(o,n)}}function jn(e,t,n){var s,o,r,i;if(O.unmount&&O.unmount(e),!(s=e.ref)||s.current&&s.current!=e.__e||On(s,null,t,e),s=e.__c){if(s.componentWillUnmount)try{s.componentWillUnmount()}catch(l){O.__e(l,t)}s.__P=s.__n=null}if(s=e.__k)for(i=0;i<s.length;i++)s[i]&&jn(s[i],t,typeof e.type!="function"||n&&!e.props.__P);!n&&(s=e.__c)&&(s=s.__z)&&(o=Pt(s,r=[]))&&(s==e.__e&&r.some(De),De(o),De(s)),n||De(e.__e),e.__e=e.__c=e.__=null}function xi(e,t,n){return this.constructor(e,n)}function Nn(e,t){var n,s,o,r;O.__&&O.__(e,t),t.nodeType==9&&(t=t.documentElement),s=(n=e&&32&e.__u)?null:t.__k,t.__k=ut(je,{children:[e]}),o=[],r=[],En(t,t.__k,s||Ft,Ft,t.namespaceURI,s?null:t.firstChild?Mn.call(t.childNodes):null,o,s?s.__e:t.firstChild,n,r),qs(o,t.__k,r),t.__k.props.children=null}O={__e:function(e,t,n,s){for(var o,r,i;t=t.__;)if((o=t.__c)&&!(1&o.__g)){o.__g|=4;try{if((i=(r=o.constructor)&&r.getDerivedStateFromError)&&o.setState(r.getDerivedStateFromError(e)),o.componentDidCatch&&(o.componentDidCatch(e,s||{}),i=1),i&&8&o.__g)return void(o.__g|=2)}catch(l){e=l}}throw Rt=0,e}},Rs=0,An=function(e){return e!=null&&e.constructor===pt},ue.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=Ie({},this.state)),typeof e=="function"&&(e=e(Ie({},n),this.props)),e&&(Ie(n,e),this.__v&&(t&&this.__k.push(t),Ls(this)))},ue.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),Ls(this))},ue.prototype.render=je,Ee=[],Rt=0,Fs=function(e,t){return e.__v.__b-t.__v.__b},Lt=Symbol(),Ds=/(PointerCapture)$|Capture$/i,Cn=0,Sn={},_i=0;var Ge,W,Ln,Ks,Pn=Object.is,Bt=0,eo=[],Rn=[],B=O,Vs=B.__b,Gs=B.__r,zs=B.diffed,Js=B.__c,Zs=B.unmount,Ys=B.__;function Ut(e,t){B.__h&&B.__h(W,e,Bt||t),Bt=0;var n=W.__H||(W.__H={__:[],__h:[]});return e>=n.__.length&&n.__.push({}),n.__[e]}function j(e){return Bt=1,Si(to,e)}function Si(e,t,n){var s=Ut(Ge++,2);if(s.t=e,!s.__c&&(s.__=[n?n(t):to(void 0,t),function(r){var i=(s.__N||s.__)[0],l=s.t(i,r);Pn(i,l)||(s.__N=[l,s.__[1]],s.__c.setState({}))}],s.__c=W,!W.__f)){W.__f=!0;var o=W.shouldComponentUpdate;W.shouldComponentUpdate=function(r,i,l){var p=this.__H;if(!p)return!0;var d=!1,u=this.props!=r;if(p.__.some(function(f){f.__N&&(d=!0,Pn(f.__[0],f.__N[0])||(u=!0))}),o){var m=o.call(this,r,i,l);return d?m||u:m}return!d||u}}return s.__}function N(e,t){var n=Ut(Ge++,3);!B.__s&&Dn(n.__H,t)&&(n.__P=!0,n.__=e,n.u=t,W.__H.__h.push(n))}function ft(e,t){var n=Ut(Ge++,4);!B.__s&&Dn(n.__H,t)&&(n.__P=!1,n.__=e,n.u=t,W.__h.push(n))}function q(e){return Bt=5,C(function(){return{current:e}},[])}function C(e,t){var n=Ut(Ge++,7);return Dn(n.__H,t)&&(n.__=e(),n.__H=t),n.__}function Ai(){var e;do{for(;e=Rn.shift();)try{dt(e)}catch(n){B.__e(n,{__:(e=e.__P)&&e.__v})}for(;e=eo.shift();){var t=e.__H;if(e.__P&&t)try{t.__h.some(dt),t.__h.some(Fn),t.__h=[]}catch(n){t.__h=[],B.__e(n,e.__v)}}}while(Rn.length)}B.__b=function(e){W=null,Vs&&Vs(e)},B.__=function(e,t){e&&t.__k&&t.__k.__m&&(e.__m=t.__k.__m),Ys&&Ys(e,t)},B.__r=function(e){Gs&&Gs(e),Ge=0;var t=(W=e.__c).__H;t&&(Ln==W?W.__h=[]:(t.__h.some(dt),t.__h.some(Fn),Ge=0),t.__h=[],t.__.some(function(n){n.__N&&(n.__=n.__N),n.u=n.__N=void 0})),Ln=W},B.diffed=function(e){zs&&zs(e);var t=e.__c;t&&t.__H&&(t.__H.__h.length&&Qs(eo.push(t)),t.__H.__.some(function(n){n.u&&(n.__H=n.u)})),Ln=W=null},B.__c=function(e,t){t.some(function(n){try{n.__h.some(dt),n.__h=n.__h.filter(function(s){return!s.__||Fn(s)})}catch(s){n.__h=[function(){throw s}]}}),Js&&Js(e,t)},B.unmount=function(e){Zs&&Zs(e);var t,n,s=e.__c;s&&s.__H&&(s.__H.__.some(function(o){try{if(o.__P&&o.__c){if(n===void 0){for(n=e.__;n&&(!n.__c||!n.__c.__P);)n=n.__;n=n&&n.__c}o.__P=n,Qs(Rn.push(o))}else dt(o)}catch(r){t=r}}),s.__H=void 0,t&&B.__e(t,s.__v))};var Xs=typeof requestAnimationFrame=="function";function Ci(e){var t,n=function(){clearTimeout(s),Xs&&cancelAnimationFrame(t),setTimeout(e)},s=setTimeout(n,35);Xs&&(t=requestAnimationFrame(n))}function Qs(e){e!=1&&Ks==B.requestAnimationFrame||((Ks=B.requestAnimationFrame)||Ci)(Ai)}function dt(e){var t=W,n=e.__c;typeof n=="function"&&(e.__c=void 0,n()),W=t}function Fn(e){var t=W;e.__c=e.__(),W=t}function Dn(e,t){return!e||e.length!=t.length||t.some(function(n,s){return!Pn(n,e[s])})}function to(e,t){return typeof t=="function"?t(e):t}var Ti=Symbol.for("preact-signals");function Kt(){if(be>1)be--;else{var e,t=!1;for((function(){var o=Wt;for(Wt=void 0;o!==void 0;){var r=o.S;if(r.v===o.v)for(var i=r.t;i!==void 0;i=i.x)i.i===o.i&&(i.i=r.i);o=o.o}})();ht!==void 0;){var n=ht;for(ht=void 0,Ht++;n!==void 0;){var s=n.u;if(n.u=void 0,n.f&=-3,!(8&n.f)&&so(n))try{n.c()}catch(o){t||(e=o,t=!0)}n=s}}if(Ht=0,be--,t)throw e}}function Bn(e){if(be>0)return e();In=++Mi,be++;try{return e()}finally{Kt()}}var mt,P=void 0;function $t(e){var t=P,n=mt;P=void 0,mt=void 0;try{return e()}finally{P=t,mt=n}}var ht=void 0,be=0,Ht=0,Mi=0,In=0,Wt=void 0,qt=0;function no(e){if(P!==void 0){var t=e.n;if(t===void 0||t.t!==P)return t={i:0,S:e,p:P.s,n:void 0,t:P,e:void 0,x:void 0,r:t},P.s!==void 0&&(P.s.n=t),P.s=t,e.n=t,32&P.f&&e.S(t),t;if(t.i===-1)return t.i=0,t.n!==void 0&&(t.n.p=t.p,t.p!==void 0&&(t.p.n=t.n),t.p=P.s,t.n=void 0,P.s.n=t,P.s=t),t}}function V(e,t){this.v=e,this.i=0,this.n=void 0,this.t=void 0,this.l=0,this.W=t?.watched,this.Z=t?.unwatched,this.name=t?.name}V.prototype.brand=Ti;V.prototype.h=function(){return!0};V.prototype.S=function(e){var t=this,n=this.t;n!==e&&e.e===void 0&&(e.x=n,this.t=e,n!==void 0?n.e=e:$t(function(){var s;(s=t.W)==null||s.call(t)}))};V.prototype.U=function(e){var t=this;if(this.t!==void 0){var n=e.e,s=e.x;n!==void 0&&(n.x=s,e.e=void 0),s!==void 0&&(s.e=n,e.x=void 0),e===this.t&&(this.t=s,s===void 0&&$t(function(){var o;(o=t.Z)==null||o.call(t)}))}};V.prototype.subscribe=function(e){var t=this;return re(function(){var n=t.value;$t(function(){return e(n)})},{name:"sub"})};V.prototype.valueOf=function(){return this.value};V.prototype.toString=function(){return this.value+""};V.prototype.toJSON=function(){return this.value};V.prototype.peek=function(){var e=this;return $t(function(){return e.value})};Object.defineProperty(V.prototype,"value",{get:function(){var e=no(this);return e!==void 0&&(e.i=this.i),this.v},set:function(e){if(e!==this.v){if(Ht>100)throw new Error("Cycle detected");(function(n){be!==0&&Ht===0&&n.l!==In&&(n.l=In,Wt={S:n,v:n.v,i:n.i,o:Wt})})(this),this.v=e,this.i++,qt++,be++;try{for(var t=this.t;t!==void 0;t=t.x)t.t.N()}finally{Kt()}}}});function w(e,t){return new V(e,t)}function so(e){for(var t=e.s;t!==void 0;t=t.n)if(t.S.i!==t.i||!t.S.h()||t.S.i!==t.i)return!0;return!1}function oo(e){for(var t=e.s;t!==void 0;t=t.n){var n=t.S.n;if(n!==void 0&&(t.r=n),t.S.n=t,t.i=-1,t.n===void 0){e.s=t;break}}}function ro(e){for(var t=e.s,n=void 0;t!==void 0;){var s=t.p;t.i===-1?(t.S.U(t),s!==void 0&&(s.n=t.n),t.n!==void 0&&(t.n.p=s)):n=t,t.S.n=t.r,t.r!==void 0&&(t.r=void 0),t=s}e.s=n}function Be(e,t){V.call(this,void 0,t),this.x=e,this.s=void 0,this.g=qt-1,this.f=4}Be.prototype=new V;Be.prototype.h=function(){if(this.f&=-3,1&this.f)return!1;if((36&this.f)==32||(this.f&=-5,this.g===qt))return!0;if(this.g=qt,this.f|=1,this.i>0&&!so(this))return this.f&=-2,!0;var e=P;try{oo(this),P=this;var t=this.x();(16&this.f||this.v!==t||this.i===0)&&(this.v=t,this.f&=-17,this.i++)}catch(n){this.v=n,this.f|=16,this.i++}return P=e,ro(this),this.f&=-2,!0};Be.prototype.S=function(e){if(this.t===void 0){this.f|=36;for(var t=this.s;t!==void 0;t=t.n)t.S.S(t)}V.prototype.S.call(this,e)};Be.prototype.U=function(e){if(this.t!==void 0&&(V.prototype.U.call(this,e),this.t===void 0)){this.f&=-33;for(var t=this.s;t!==void 0;t=t.n)t.S.U(t)}};Be.prototype.N=function(){if(!(2&this.f)){this.f|=6;for(var e=this.t;e!==void 0;e=e.x)e.t.N()}};Object.defineProperty(Be.prototype,"value",{get:function(){if(1&this.f)throw new Error("Cycle detected");var e=no(this);if(this.h(),e!==void 0&&(e.i=this.i),16&this.f)throw this.v;return this.v}});function Ne(e,t){return new Be(e,t)}function io(e){var t=e.j;if(e.j=void 0,typeof t=="function"){be++;var n=P;P=void 0;try{t()}catch(s){throw e.f&=-2,e.f|=8,Un(e),s}finally{P=n,Kt()}}}function Un(e){for(var t=e.s;t!==void 0;t=t.n)t.S.U(t);e.x=void 0,e.s=void 0,io(e)}function Ei(e){if(P!==this)throw new Error("Out-of-order effect");ro(this),P=e,this.f&=-2;try{8&this.f&&Un(this)}finally{Kt()}}function ze(e,t){this.x=e,this.j=void 0,this.s=void 0,this.u=void 0,this.f=32,this.name=t?.name,mt&&mt.push(this)}ze.prototype.c=function(){var e=this.S();try{if(8&this.f||this.x===void 0)return;var t=this.x();typeof t=="function"&&(this.j=t)}finally{e()}};ze.prototype.S=function(){if(1&this.f)throw new Error("Cycle detected");this.f|=1,this.f&=-9,io(this),oo(this),be++;var e=P;return P=this,Ei.bind(this,e)};ze.prototype.N=function(){2&this.f||(this.f|=2,this.u=ht,ht=this)};ze.prototype.d=function(){this.f|=8,1&this.f||Un(this)};ze.prototype.dispose=function(){this.d()};function re(e,t){var n=new ze(e,t);try{n.c()}catch(o){throw n.d(),o}var s=n.d.bind(n);return s[Symbol.dispose]=s,s}var ao,Gt,Vt,Oi=typeof window<"u"&&!!window.__PREACT_SIGNALS_DEVTOOLS__;var lo=[];re(function(){ao=this.N})();function Je(e,t){O[e]=t.bind(null,O[e]||function(){})}function _t(e){if(Vt){var t=Vt;Vt=void 0,t()}Vt=e&&e.S()}function co(e){var t=this,n=e.data,s=uo(n);s.name="ReactiveDom",s.value=n;var o=C(function(){for(var l=t,p=t.__v;p=p.__;)if(p.__c){p.__c.__$f|=4;break}var d=Ne(function(){var c=s.value.value;return c===0?0:c===!0?"":c||""}),u=Ne(function(){return!Array.isArray(d.value)&&!An(d.value)}),m=re(function(){if(this.N=po,u.value){var c=d.value;l.__v&&l.__v.__e&&l.__v.__e.nodeType===3&&(l.__v.__e.data=c)}}),f=t.__$u.d;return t.__$u.d=function(){m(),f.call(this)},[u,d]},[]),r=o[0],i=o[1];return r.value?i.peek():i.value}co.displayName="ReactiveTextNode";Object.defineProperties(V.prototype,{constructor:{configurable:!0,value:It(je,null).constructor},type:{configurable:!0,value:co},props:{configurable:!0,get:function(){var e=this;return{data:{get value(){return e.value}}}}},__b:{configurable:!0,value:1}});Je("__b",function(e,t){if(_t(),Gt=void 0,typeof t.type=="string"){var n,s=t.props;for(var o in s)if(o!=="children"){var r=s[o];r instanceof V&&(n||(t.__np=n={}),n[o]=r,s[o]=r.peek())}}e(t)});Je("__r",function(e,t){if(e(t),t.type!==je){_t();var n,s=t.__c;s&&(s.__$f&=-2,(n=s.__$u)===void 0&&(s.__$u=n=(function(o,r){var i;return re(function(){i=this},{name:r}),i.c=o,i})((function(o){return function(){var r;Oi&&((r=this.y)==null||r.call(this)),o.__$f|=1,o.setState({})}})(s),typeof t.type=="function"?t.type.displayName||t.type.name:""))),Gt=s,_t(n)}});Je("__e",function(e,t,n,s){_t(),Gt=void 0,e(t,n,s)});Je("diffed",function(e,t){_t(),Gt=void 0;var n;if(typeof t.type=="string"&&(n=t.__e)){var s=t.__np,o=t.props,r=n.U;if(r)for(var i in r){var l=r[i];l===void 0||s&&i in s||(l.d(),r[i]=void 0)}if(s){r||(r={},n.U=r);for(var p in s){var d=r[p],u=s[p];d===void 0?(d=ji(n,p,u,o),r[p]=d):d.o(u,o)}}}e(t)});function ji(e,t,n,s){var o=t in e&&e.ownerSVGElement===void 0,r=w(n);return{o:function(i,l){r.value=i,s=l},d:re(function(){this.N=po;var i=r.value.value;s[t]!==i&&(s[t]=i,o?e[t]=i:i!=null&&(i!==!1||t[4]==="-")?e.setAttribute(t,i):e.removeAttribute(t))})}}Je("unmount",function(e,t){if(typeof t.type=="string"){var n=t.__e;if(n){var s=n.U;if(s){n.U=void 0;for(var o in s){var r=s[o];r&&r.d()}}}var i=t.__np;if(i){var l=t.props;for(var p in i)l[p]=i[p]}t.__np=void 0}else{var d=t.__c;if(d){d.__$f|=8;var u=d.__$u;u&&(d.__$u=void 0,u.d())}}e(t)});Je("__h",function(e,t,n,s){s<3&&(t.__$f|=2),e(t,n,s)});ue.prototype.shouldComponentUpdate=function(e,t){if(this.__R)return!0;var n=this.__$u,s=n&&n.s!==void 0;for(var o in t)return!0;if(this.__f||typeof this.u=="boolean"&&this.u===!0){var r=2&this.__$f;if(!(s||r||4&this.__$f)||1&this.__$f)return!0}else if(!(s||4&this.__$f)||3&this.__$f)return!0;for(var i in e)if(i!=="__source"&&e[i]!==this.props[i])return!0;for(var l in this.props)if(!(l in e))return!0;return!1};function uo(e,t){return C(function(){return w(e,t)},[])}var Ni=function(e){queueMicrotask(function(){queueMicrotask(e)})};function Li(){Bn(function(){for(var e;e=lo.shift();)ao.call(e)})}function po(){lo.push(this)===1&&(O.requestAnimationFrame||Ni)(Li)}var zt=I.now-performance.now()/1e3;function x(){return zt+performance.now()/1e3}function fo(e){if(typeof e!="number")return;let t=e-performance.now()/1e3;(t>zt||zt-t>60)&&(zt=t)}var pe=w(0),Jt=w(0);setInterval(()=>{document.hidden||(pe.value+=1,pe.value%60===0&&(Jt.value+=1))},1e3);document.addEventListener("visibilitychange",()=>{document.hidden||(pe.value+=1,Jt.value+=1)});var Pi=new Set(["current","Ready","Running","Completed","Succeeded","Active","Bound"]),Ri=new Set(["in progress","terminating","Terminating","Pending","ContainerCreating","PodInitializing","Ready,SchedulingDisabled","other","waiting"]),vt=["deployments","statefulsets","daemonsets","jobs","cronjobs"],mo=[...vt,"nodes","pods","namespaces"];function Zt(e){return Pi.has(e)?"ok":Ri.has(e)||/^Init:\d+\/\d+$/.test(e)?"progress":"bad"}function Ue({health:e,state:t}){return!e||e==="current"?Zt(e||t||""):[Zt(e),Zt(t||e)].includes("bad")?"bad":"progress"}function Le(e,t){let n={ok:0,progress:0,bad:0,total:0},s=!1;for(let o of t){let r=e?.[o];if(!r)continue;s=!0,n.total+=Yt(r.total);let i=typeof r.states=="object"&&r.states?r.states:{};for(let[l,p]of Object.entries(i))n[Zt(l)]+=Yt(p)}return s?n:null}function Yt(e){return typeof e=="number"&&Number.isFinite(e)&&e>=0?e:0}function Xt(e){return mo.every(t=>e?.[t])}function ho(e){let t=Le(e,mo);return t&&t.bad+t.progress}function gt(e,t){let n=t;try{let o=localStorage.getItem(`kas-${e}`);o!==null&&(n=JSON.parse(o))}catch{}(Array.isArray(t)!==Array.isArray(n)||typeof n!=typeof t)&&(n=t);let s=w(n);return re(()=>{let o=JSON.stringify(s.value);try{localStorage.setItem(`kas-${e}`,o)}catch{}}),s}var He=w(document.documentElement.dataset.theme||"system");re(()=>{document.documentElement.dataset.theme=He.value,document.cookie=`kas-theme=${He.value}; Path=/; SameSite=Lax; Secure; Max-Age=31536000`});var ye=gt("density","comfortable");re(()=>{document.documentElement.dataset.density=ye.value});var de=gt("zone",""),fe=gt("shortcuts",!0),Pe=gt("pinned",[]),_e=gt("recent",[]);function $o(e){_e.peek()[0]!==e&&(_e.value=[e,..._e.peek().filter(t=>t!==e)].slice(0,8))}function _o(e){let t=Pe.peek();Pe.value=t.includes(e)?t.filter(n=>n!==e):[...t,e]}var en={logger:typeof console<"u"?console:void 0,WebSocket:typeof WebSocket<"u"?WebSocket:void 0},D={log(...e){this.enabled&&(e.push(Date.now()),en.logger.log("[ActionCable]",...e))}},yt=()=>new Date().getTime(),Qt=e=>(yt()-e)/1e3,kt=class{constructor(t){this.visibilityDidChange=this.visibilityDidChange.bind(this),this.connection=t,this.reconnectAttempts=0}start(){this.isRunning()||(this.startedAt=yt(),delete this.stoppedAt,this.startPolling(),addEventListener("visibilitychange",this.visibilityDidChange),D.log(`ConnectionMonitor started. stale threshold = ${this.constructor.staleThreshold} s`))}stop(){this.isRunning()&&(this.stoppedAt=yt(),this.stopPolling(),removeEventListener("visibilitychange",this.visibilityDidChange),D.log("ConnectionMonitor stopped"))}isRunning(){return this.startedAt&&!this.stoppedAt}recordMessage(){this.pingedAt=yt()}recordConnect(){this.reconnectAttempts=0,delete this.disconnectedAt,D.log("ConnectionMonitor recorded connect")}recordDisconnect(){this.disconnectedAt=yt(),D.log("ConnectionMonitor recorded disconnect")}startPolling(){this.stopPolling(),this.poll()}stopPolling(){clearTimeout(this.pollTimeout)}poll(){this.pollTimeout=setTimeout((()=>{this.reconnectIfStale(),this.poll()}),this.getPollInterval())}getPollInterval(){let{staleThreshold:t,reconnectionBackoffRate:n}=this.constructor,s=Math.pow(1+n,Math.min(this.reconnectAttempts,10)),r=(this.reconnectAttempts===0?1:n)*Math.random();return t*1e3*s*(1+r)}reconnectIfStale(){this.connectionIsStale()&&(D.log(`ConnectionMonitor detected stale connection. reconnectAttempts = ${this.reconnectAttempts}, time stale = ${Qt(this.refreshedAt)} s, stale threshold = ${this.constructor.staleThreshold} s`),this.reconnectAttempts++,this.disconnectedRecently()?D.log(`ConnectionMonitor skipping reopening recent disconnect. time disconnected = ${Qt(this.disconnectedAt)} s`):(D.log("ConnectionMonitor reopening"),this.connection.reopen()))}get refreshedAt(){return this.pingedAt?this.pingedAt:this.startedAt}connectionIsStale(){return Qt(this.refreshedAt)>this.constructor.staleThreshold}disconnectedRecently(){return this.disconnectedAt&&Qt(this.disconnectedAt)<this.constructor.staleThreshold}visibilityDidChange(){document.visibilityState==="visible"&&setTimeout((()=>{(this.connectionIsStale()||!this.connection.isOpen())&&(D.log(`ConnectionMonitor reopening stale connection on visibilitychange. visibilityState = ${document.visibilityState}`),this.connection.reopen())}),200)}};kt.staleThreshold=6;kt.reconnectionBackoffRate=.15;var go={message_types:{welcome:"welcome",disconnect:"disconnect",ping:"ping",confirmation:"confirm_subscription",rejection:"reject_subscription"},disconnect_reasons:{unauthorized:"unauthorized",invalid_request:"invalid_request",server_restart:"server_restart",remote:"remote"},default_mount_path:"/cable",protocols:["actioncable-v1-json","actioncable-unsupported"]},{message_types:bt,protocols:Hn}=go,Fi=Hn.slice(0,Hn.length-1),vo=[].indexOf,wt=class{constructor(t){this.open=this.open.bind(this),this.consumer=t,this.subscriptions=this.consumer.subscriptions,this.monitor=new kt(this),this.disconnected=!0}send(t){return this.isOpen()?(this.webSocket.send(JSON.stringify(t)),!0):!1}open(){if(this.isActive())return D.log(`Attempted to open WebSocket, but existing socket is ${this.getState()}`),!1;{let t=[...Hn,...this.consumer.subprotocols||[]];return D.log(`Opening WebSocket, current state is ${this.getState()}, subprotocols: ${t}`),this.webSocket&&this.uninstallEventHandlers(),this.webSocket=new en.WebSocket(this.consumer.url,t),this.installEventHandlers(),this.monitor.start(),!0}}close({allowReconnect:t}={allowReconnect:!0}){if(t||this.monitor.stop(),this.isOpen())return this.webSocket.close()}reopen(){if(D.log(`Reopening WebSocket, current state is ${this.getState()}`),this.isActive())try{return this.close()}catch(t){D.log("Failed to reopen WebSocket",t)}finally{D.log(`Reopening WebSocket in ${this.constructor.reopenDelay}ms`),setTimeout(this.open,this.constructor.reopenDelay)}else return this.open()}getProtocol(){if(this.webSocket)return this.webSocket.protocol}isOpen(){return this.isState("open")}isActive(){return this.isState("open","connecting")}triedToReconnect(){return this.monitor.reconnectAttempts>0}isProtocolSupported(){return vo.call(Fi,this.getProtocol())>=0}isState(...t){return vo.call(t,this.getState())>=0}getState(){if(this.webSocket){for(let t in en.WebSocket)if(en.WebSocket[t]===this.webSocket.readyState)return t.toLowerCase()}return null}installEventHandlers(){for(let t in this.events){let n=this.events[t].bind(this);this.webSocket[`on${t}`]=n}}uninstallEventHandlers(){for(let t in this.events)this.webSocket[`on${t}`]=function(){}}};wt.reopenDelay=500;wt.prototype.events={message(e){if(!this.isProtocolSupported())return;let{identifier:t,message:n,reason:s,reconnect:o,type:r}=JSON.parse(e.data);switch(this.monitor.recordMessage(),r){case bt.welcome:return this.triedToReconnect()&&(this.reconnectAttempted=!0),this.monitor.recordConnect(),this.subscriptions.reload();case bt.disconnect:return D.log(`Disconnecting. Reason: ${s}`),this.close({allowReconnect:o});case bt.ping:return null;case bt.confirmation:return this.subscriptions.confirmSubscription(t),this.reconnectAttempted?(this.reconnectAttempted=!1,this.subscriptions.notify(t,"connected",{reconnected:!0})):this.subscriptions.notify(t,"connected",{reconnected:!1});case bt.rejection:return this.subscriptions.reject(t);default:return this.subscriptions.notify(t,"received",n)}},open(){if(D.log(`WebSocket onopen event, using '${this.getProtocol()}' subprotocol`),this.disconnected=!1,!this.isProtocolSupported())return D.log("Protocol is unsupported. Stopping monitor and disconnecting."),this.close({allowReconnect:!1})},close(e){if(D.log("WebSocket onclose event"),!this.disconnected)return this.disconnected=!0,this.monitor.recordDisconnect(),this.subscriptions.notifyAll("disconnected",{willAttemptReconnect:this.monitor.isRunning()})},error(){D.log("WebSocket onerror event")}};var Di=function(e,t){if(t!=null)for(let n in t){let s=t[n];e[n]=s}return e},Wn=class{constructor(t,n={},s){this.consumer=t,this.identifier=JSON.stringify(n),Di(this,s)}perform(t,n={}){return n.action=t,this.send(n)}send(t){return this.consumer.send({command:"message",identifier:this.identifier,data:JSON.stringify(t)})}unsubscribe(){return this.consumer.subscriptions.remove(this)}},qn=class{constructor(t){this.subscriptions=t,this.pendingSubscriptions=[]}guarantee(t){this.pendingSubscriptions.indexOf(t)==-1?(D.log(`SubscriptionGuarantor guaranteeing ${t.identifier}`),this.pendingSubscriptions.push(t)):D.log(`SubscriptionGuarantor already guaranteeing ${t.identifier}`),this.startGuaranteeing()}forget(t){D.log(`SubscriptionGuarantor forgetting ${t.identifier}`),this.pendingSubscriptions=this.pendingSubscriptions.filter((n=>n!==t))}startGuaranteeing(){this.stopGuaranteeing(),this.retrySubscribing()}stopGuaranteeing(){clearTimeout(this.retryTimeout)}retrySubscribing(){this.retryTimeout=setTimeout((()=>{this.subscriptions&&typeof this.subscriptions.subscribe=="function"&&this.pendingSubscriptions.map((t=>{D.log(`SubscriptionGuarantor resubscribing ${t.identifier}`),this.subscriptions.subscribe(t)}))}),500)}},Kn=class{constructor(t){this.consumer=t,this.guarantor=new qn(this),this.subscriptions=[]}create(t,n){let s=t,o=typeof s=="object"?s:{channel:s},r=new Wn(this.consumer,o,n);return this.add(r)}add(t){return this.subscriptions.push(t),this.consumer.ensureActiveConnection(),this.notify(t,"initialized"),this.subscribe(t),t}remove(t){return this.forget(t),this.findAll(t.identifier).length||this.sendCommand(t,"unsubscribe"),t}reject(t){return this.findAll(t).map((n=>(this.forget(n),this.notify(n,"rejected"),n)))}forget(t){return this.guarantor.forget(t),this.subscriptions=this.subscriptions.filter((n=>n!==t)),t}findAll(t){return this.subscriptions.filter((n=>n.identifier===t))}reload(){return this.subscriptions.map((t=>this.subscribe(t)))}notifyAll(t,...n){return this.subscriptions.map((s=>this.notify(s,t,...n)))}notify(t,n,...s){let o;return typeof t=="string"?o=this.findAll(t):o=[t],o.map((r=>typeof r[n]=="function"?r[n](...s):void 0))}subscribe(t){this.sendCommand(t,"subscribe")&&this.guarantor.guarantee(t)}confirmSubscription(t){D.log(`Subscription confirmed ${t}`),this.findAll(t).map((n=>this.guarantor.forget(n)))}sendCommand(t,n){let{identifier:s}=t;return this.consumer.send({command:n,identifier:s})}},Vn=class{constructor(t){this._url=t,this.subscriptions=new Kn(this),this.connection=new wt(this),this.subprotocols=[]}get url(){return Ii(this._url)}send(t){return this.connection.send(t)}connect(){return this.connection.open()}disconnect(){return this.connection.close({allowReconnect:!1})}ensureActiveConnection(){if(!this.connection.isActive())return this.connection.open()}addSubProtocol(t){this.subprotocols=[...this.subprotocols,t]}};function Ii(e){if(typeof e=="function"&&(e=e()),e&&!/^wss?:/i.test(e)){let t=document.createElement("a");return t.href=e,t.href=t.href,t.protocol=t.protocol.replace("http","ws"),t.href}else return e}function bo(e=Bi("url")||go.default_mount_path){return new Vn(e)}function Bi(e){let t=document.head.querySelector(`meta[name='action-cable-${e}']`);if(t)return t.getAttribute("content")}function yo(e,t,n){if(n.snapshot){let i=new Map;for(let[l,p]of Object.entries(n.snapshot)){let d=e.get(l);i.set(l,d!==void 0&&Ui(d,p)?d:p)}return t.epoch=n.e,t.sequence=n.s??0,{rows:i,isGap:!1}}let s=n.s??0,o=n.e===t.epoch,r=!o||s>t.sequence+1;if(o&&s>=t.sequence){for(let[i,l]of Object.entries(n.put??{}))e.set(i,l);for(let i of n.delete??[])e.delete(i);t.sequence=s}return{rows:e,isGap:r}}function Ui(e,t){return e===t||JSON.stringify(e)===JSON.stringify(t)}var wo=function(e,t,n,s){var o;t[0]=0;for(var r=1;r<t.length;r++){var i=t[r++],l=t[r]?(t[0]|=i?1:2,n[t[r++]]):t[++r];i===3?s[0]=l:i===4?s[1]=Object.assign(s[1]||{},l):i===5?(s[1]=s[1]||{})[t[++r]]=l:i===6?s[1][t[++r]]+=l+"":i?(o=e.apply(l,wo(e,l,n,["",null])),s.push(o),l[0]?t[0]|=2:(t[r-2]=0,t[r]=o)):s.push(l)}return s},ko=new Map;function xo(e){var t=ko.get(this);return t||(t=new Map,ko.set(this,t)),(t=wo(this,t.get(e)||(t.set(e,t=(function(n){for(var s,o,r=1,i="",l="",p=[0],d=function(f){r===1&&(f||(i=i.replace(/^\s*\n\s*|\s*\n\s*$/g,"")))?p.push(0,f,i):r===3&&(f||i)?(p.push(3,f,i),r=2):r===2&&i==="..."&&f?p.push(4,f,0):r===2&&i&&!f?p.push(5,0,!0,i):r>=5&&((i||!f&&r===5)&&(p.push(r,0,i,o),r=6),f&&(p.push(r,f,0,o),r=6)),i=""},u=0;u<n.length;u++){u&&(r===1&&d(),d(u));for(var m=0;m<n[u].length;m++)s=n[u][m],r===1?s==="<"?(d(),p=[p],r=3):i+=s:r===4?i==="--"&&s===">"?(r=1,i=""):i=s+i[0]:l?s===l?l="":i+=s:s==='"'||s==="'"?l=s:s===">"?(d(),r=1):r&&(s==="="?(r=5,o=i,i=""):s==="/"&&(r<5||n[u][m+1]===">")?(d(),r===3&&(p=p[0]),r=p,(p=p[0]).push(2,0,r),r=0):s===" "||s==="	"||s===`
`||s==="\r"?(d(),r=2):i+=s),r===3&&i==="!--"&&(r=4,p=p[0])}return d(),p})(e)),t),arguments,[])).length>1?t:t[0]}var a=xo.bind(It);function ke(...e){return e.filter(Boolean).join(" ")}var we=w(!1);function Ao(){return`/ui/sign-in?next=${encodeURIComponent(location.pathname+location.search)}`}var Hi=3e5,So=performance.now();for(let e of["pointerdown","keydown"])document.addEventListener(e,()=>{we.peek()||performance.now()-So<Hi||(So=performance.now(),fetch("/ui/api/session",{credentials:"same-origin"}).then(t=>{t.status===401&&(we.value=!0)},()=>{}))},{capture:!0,passive:!0});async function tn(){try{let e=await fetch("/ui/sign-out",{method:"POST",headers:{"X-Kas-Csrf":I.csrf},credentials:"same-origin"}),t=await e.json();return e.ok||e.status===401?(location.assign(typeof t.next=="string"?t.next:"/ui/sign-in"),""):`${t.message??e.status}`}catch{return"kas does not respond"}}var nn=class extends Error{constructor(t,n){super(n),this.status=t}};async function Q(e,t={},n){let s=new URLSearchParams(t).toString(),o;try{o=await fetch(s?`${e}?${s}`:e,{headers:{Accept:"application/json"},credentials:"same-origin",signal:n??null})}catch(i){throw n?.aborted?i:new nn(0,"kas did not respond")}let r;try{r=await o.json()}catch{r={}}if(o.status===401&&(we.value=!0),!o.ok)throw new nn(o.status,r.message||`kas responded with ${o.status}`);return fo(r.asOf),r}async function Gn(e,t,n){let s=[],o="",r;do r=await Q(e,{...t,limit:"5000",...o?{continue:o}:{}},n),s.push(...r.items),o=r.continue;while(o&&s.length<Wi);return{items:s,incomplete:r.clusters.incomplete,missingKas:r.missingKas,asOf:r.asOf,isCut:!!o}}var Wi=2e4;var qi=250,Ki=2e4,Vi=12e4,Co=[15e3,24e4],xe=w({state:"connecting",since:x()}),St=w(0),zn=new URL("/-/cable",location.href);zn.protocol=zn.protocol.replace("http","ws");var xt=bo(zn.href);function on(e){xe.peek().state!==e&&(xe.value={state:e,since:x()})}var Jn=class{constructor(t,n){this.key=t,this.params=n,this.rows=new Map,this.version=w(0),this.state=w("loading"),this.reason=w(""),this.status=w(0),this.since=w(x()),this.retryAt=w(0),this.readers=0,this._position={epoch:null,sequence:0},this._subscription=null,this._redraw=0,this._drawn=0,this._retry=0,this._refusals=0}open(){let t=crypto.getRandomValues(new Uint32Array(1))[0].toString(36);this._subscription=xt.subscriptions.create({...this.params,tab:t},{connected:({reconnected:n})=>this._connected(n),disconnected:({willAttemptReconnect:n})=>Gi(n),rejected:()=>this._rejected(),received:n=>this._received(n)})}close(){clearTimeout(this._redraw),clearTimeout(this._retry),this._subscription?.unsubscribe(),this._subscription=null}retry(){this.close(),this.rows.size||(this.state.value="loading"),this.since.value=x(),this._position={epoch:null,sequence:0},this.open()}_connected(t){on("open");let{epoch:n,sequence:s}=this._position;t&&n!==null&&this._subscription?.perform("resume",{e:n,s})}_rejected(){on("open"),this._subscription=null,this.state.value="refused",this.since.value=x();let t=Math.min(Co[0]*2**this._refusals,Co[1]);this._refusals+=1,this.retryAt.value=x()+t/1e3,this._retry=setTimeout(()=>this.retry(),t);let n=this.params.clusters??[this.params.cluster];Q("/api/v1/clusters",{clusters:n.join(",")}).then(s=>{let o=s.clusters.find(r=>r.state==="denied");this.status.value=o?403:503,this.reason.value=o?.reason??"kas has too much work for this user at the moment"},s=>{this.status.value=s.status,this.reason.value=s.message})}_received(t){let{rows:n,isGap:s}=yo(this.rows,this._position,t);this.rows=n,St.value=x(),this._refusals=0,s&&this.retry(),t.snapshot||this.state.peek()!=="live"?(this.state.value="live",this._draw()):this._redraw||(this._redraw=setTimeout(()=>this._draw(),Math.max(0,this._drawn+qi-performance.now())))}_draw(){clearTimeout(this._redraw),this._redraw=0,this._drawn=performance.now(),this.version.value+=1}};function Gi(e){on("lost"),!(e||sn)&&Q("/ui/api/agents").then(()=>setTimeout(()=>xt.connect(),5e3),()=>{we.peek()||setTimeout(()=>xt.connect(),15e3)})}var sn=!1,To=0;document.addEventListener("visibilitychange",()=>{clearTimeout(To),document.hidden?To=setTimeout(()=>{sn=!0,xt.disconnect()},Vi):sn&&(sn=!1,on("connecting"),xt.connect())});var rn=new Map;function Mo(e){let t=JSON.stringify(e),n=rn.get(t);return n||(n=new Jn(t,e),rn.set(t,n),n.open()),n}function Zn(e){e.readers-=1,setTimeout(()=>{e.readers||rn.get(e.key)!==e||(rn.delete(e.key),e.close())},Ki)}function Se(e){let t=JSON.stringify(e),n=C(()=>Mo(e),[t]);return N(()=>(n.readers+=1,()=>Zn(n)),[n]),n}function Eo(e){let t=Mo(e);return t.readers+=1,t}var me=w({list:[],isComplete:!0,reason:"",isLoaded:!1,error:null,since:x()});async function At(){try{let e=await Q("/ui/api/agents");me.value={list:e.agents,isComplete:e.complete,reason:e.reason??"",isLoaded:!0,error:null,since:x()}}catch(e){me.value={...me.peek(),error:e,since:x()}}}var zi=6e4;setInterval(()=>{document.hidden||At()},zi);var Ze={names:"",feed:null};function he(){let e=[...We()].sort(),t=e.join(",");return(!Ze.feed||Ze.names!==t)&&(Ze.feed&&Zn(Ze.feed),Ze={names:t,feed:Eo({channel:"FleetChannel",clusters:e})}),Ze.feed}var jo=new Map,Ae=Ne(()=>{let e=he();e.version.value;let{list:t}=me.value,n=new Map,s=new Map(t.map(r=>[r.id,r])),o=new Map(t.map(r=>[r.name,r]));for(let[r,i]of e.rows){if(!r.startsWith("cluster/"))continue;let l=r.slice(8),p=s.get(l)??o.get(i.name);n.set(r,Oo(r,l,i,p))}for(let r of t){let i=`cluster/${r.id}`;if(n.has(i))continue;let l=e.state.value==="live"?"never":r.connected?"live":"offline";n.set(i,Oo(i,r.id,Ji[l],r))}return jo=n,[...n.values()]}),Ji={never:{state:"never",name:""},live:{state:"live",name:""},offline:{state:"offline",name:""}};function Oo(e,t,n,s){let o=jo.get(e);return o&&o.source===n&&o.agentkVersion===(s?.agentkVersion??"")&&o.kubernetesVersion===(s?.kubernetesVersion??"")&&(o.labels===s?.labels||JSON.stringify(o.labels)===JSON.stringify(s?.labels??{}))?o:{key:e,id:t,source:n,name:n.name||s?.name||t,labels:s?.labels??{},state:n.state,lastSeen:n.lastSeen||null,summary:n.summary,nodes:Le(n.summary,["nodes"]),workloads:Le(n.summary,vt),problems:ho(n.summary),kubernetesVersion:s?.kubernetesVersion??"",agentkVersion:s?.agentkVersion??""}}var No=Ne(()=>new Map(Ae.value.map(e=>[e.name,e]))),Ct=Ne(()=>{let e={clusters:0,live:0,late:0,offline:0,never:0,denied:0,nodes:0,brokenNodes:0,workloads:0,brokenWorkloads:0,problems:0,troubled:0,oldProblems:0,knowNodes:0,knowWorkloads:0,knowProblems:0};for(let t of Ae.value)e.clusters+=1,e[t.state]+=1,e.nodes+=t.nodes?.total??0,e.brokenNodes+=t.nodes?.bad??0,e.workloads+=t.workloads?.total??0,e.brokenWorkloads+=t.workloads?.bad??0,e.problems+=t.problems??0,t.problems&&(e.troubled+=1),t.nodes&&(e.knowNodes+=1),t.workloads&&(e.knowWorkloads+=1),t.problems!==null&&Xt(t.summary)&&(e.knowProblems+=1),t.state!=="live"&&(e.oldProblems+=t.problems??0);return e});function We(){return me.value.isComplete||!_e.value.length?["*"]:_e.value}function ee({title:e,above:t,actions:n,children:s}){return N(()=>{document.title=`${e} · kas`},[e]),a`
<header class="heading">
${t}
<div class="heading__line"><h1 tabindex="-1">${e}</h1>${n}</div>
${s}
</header>`}var Zi=1e4,Lo=3e4,Yi=12,Yn=class{constructor(t){this.load=t,this.state=w({data:null,error:null,since:x(),retryAt:0}),this.version=-1,this._timer=0,this._began=-1/0,this._abort=null}async reload(){clearTimeout(this._timer),this._abort?.abort();let t=new AbortController;this._abort=t,this._began=performance.now(),this.version=he().version.peek();try{let n=await this.load(t.signal);t.signal.aborted||(this.state.value={data:n,error:null,since:x(),retryAt:0})}catch(n){if(t.signal.aborted)return;let s=x()+Lo/1e3;this.state.value={...this.state.peek(),error:n,since:x(),retryAt:s},this._timer=setTimeout(()=>this.reload(),Lo)}}refresh(){document.hidden||this.state.peek().error||this.version===he().version.peek()||(clearTimeout(this._timer),this._timer=setTimeout(()=>this.reload(),Math.max(0,this._began+Zi-performance.now())))}stop(){clearTimeout(this._timer)}},Ye=new Map;function Po(e,t){let n=C(()=>{let s=Ye.get(e)??new Yn(t);return Ye.delete(e),Ye.set(e,s),Ye.size>Yi&&Ye.delete(Ye.keys().next().value),s},[e]);return N(()=>{let{state:s}=n;(s.peek().data===null||s.peek().error)&&n.reload();let o=he().version.subscribe(()=>n.refresh());return()=>{o(),n.stop()}},[n]),n}var M="/ui";function Xn(){return{path:location.pathname.replace(/\/+$/,"")||M,params:new URLSearchParams(location.search)}}var L=w(Xn());function R(e,{replace:t=!1}={}){if(e===location.pathname+location.search)return;let n=L.peek().path;t?history.replaceState(history.state,"",e):(history.replaceState({scroll:scrollY},""),history.pushState(null,"",e)),L.value=Xn(),L.peek().path!==n&&Xi()}function Xi(){scrollTo(0,0),requestAnimationFrame(()=>{document.querySelector("h1")?.focus({preventScroll:!0})})}function U(e,t=L.value.path){let n=new URLSearchParams(L.value.params);for(let[s,o]of Object.entries(e))o?n.set(s,o):n.delete(s);return ve(t,n)}function ve(e,t={}){let n=new URLSearchParams(t).toString().replaceAll(/%(?:2F|2C|3D|7E|3A)/g,decodeURIComponent);return n?`${e}?${n}`:e}function T(e,t="",n={}){return ve(`${M}/clusters/${encodeURIComponent(e)}${t&&`/${t}`}`,n)}addEventListener("popstate",e=>{L.value=Xn();let t=e.state?.scroll??0;requestAnimationFrame(()=>requestAnimationFrame(()=>scrollTo(0,t)))});history.scrollRestoration="manual";document.addEventListener("click",e=>{if(e.defaultPrevented||e.button||e.metaKey||e.ctrlKey||e.shiftKey||e.altKey)return;let t=e.target instanceof Element?e.target.closest("a[href]"):null;!(t instanceof HTMLAnchorElement)||t.target||t.hasAttribute("download")||t.origin!==location.origin||!Qi(t.pathname)||(e.preventDefault(),R(t.pathname+t.search,{replace:t.dataset.replace!==void 0}))});function Qi(e){return(e===M||e.startsWith(`${M}/`))&&!/^\/ui\/(?:static\/|api\/|sign-)/.test(e)}var Ro=[["path",{d:"M12 5v14"}],["path",{d:"m19 12-7 7-7-7"}]];var Fo=[["path",{d:"m5 12 7-7 7 7"}],["path",{d:"M12 19V5"}]];var Do=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M4.929 4.929 19.07 19.071"}]];var Io=[["path",{d:"M10.268 21a2 2 0 0 0 3.464 0"}],["path",{d:"M3.262 15.326A1 1 0 0 0 4 17h16a1 1 0 0 0 .74-1.673C19.41 13.956 18 12.499 18 8A6 6 0 0 0 6 8c0 4.499-1.411 5.956-2.738 7.326"}]];var Bo=[["path",{d:"M2.97 12.92A2 2 0 0 0 2 14.63v3.24a2 2 0 0 0 .97 1.71l3 1.8a2 2 0 0 0 2.06 0L12 19v-5.5l-5-3-4.03 2.42Z"}],["path",{d:"m7 16.5-4.74-2.85"}],["path",{d:"m7 16.5 5-3"}],["path",{d:"M7 16.5v5.17"}],["path",{d:"M12 13.5V19l3.97 2.38a2 2 0 0 0 2.06 0l3-1.8a2 2 0 0 0 .97-1.71v-3.24a2 2 0 0 0-.97-1.71L17 10.5l-5 3Z"}],["path",{d:"m17 16.5-5-3"}],["path",{d:"m17 16.5 4.74-2.85"}],["path",{d:"M17 16.5v5.17"}],["path",{d:"M7.97 4.42A2 2 0 0 0 7 6.13v4.37l5 3 5-3V6.13a2 2 0 0 0-.97-1.71l-3-1.8a2 2 0 0 0-2.06 0l-3 1.8Z"}],["path",{d:"M12 8 7.26 5.15"}],["path",{d:"m12 8 4.74-2.85"}],["path",{d:"M12 13.5V8"}]];var Uo=[["path",{d:"M20 6 9 17l-5-5"}]];var Ho=[["path",{d:"m6 9 6 6 6-6"}]];var Wo=[["circle",{cx:"12",cy:"12",r:"10"}],["line",{x1:"12",x2:"12",y1:"8",y2:"12"}],["line",{x1:"12",x2:"12.01",y1:"16",y2:"16"}]];var qo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"m16 9-5.5 5.5L8 12"}]];var Ko=[["path",{d:"M10.1 2.182a10 10 0 0 1 3.8 0"}],["path",{d:"M13.9 21.818a10 10 0 0 1-3.8 0"}],["path",{d:"M17.609 3.721a10 10 0 0 1 2.69 2.7"}],["path",{d:"M2.182 13.9a10 10 0 0 1 0-3.8"}],["path",{d:"M20.279 17.609a10 10 0 0 1-2.7 2.69"}],["path",{d:"M21.818 10.1a10 10 0 0 1 0 3.8"}],["path",{d:"M3.721 6.391a10 10 0 0 1 2.7-2.69"}],["path",{d:"M6.391 20.279a10 10 0 0 1-2.69-2.7"}]];var Vo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M9.09 9a3 3 0 0 1 5.83 1c0 2-3 3-3 3"}],["path",{d:"M12 17h.01"}]];var Go=[["path",{d:"M17.925 20.056a6 6 0 0 0-11.851.001"}],["circle",{cx:"12",cy:"11",r:"4"}],["circle",{cx:"12",cy:"12",r:"10"}]];var zo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M12 6v6l4 2"}]];var Jo=[["path",{d:"M10.94 5.274A7 7 0 0 1 15.71 10h1.79a4.5 4.5 0 0 1 4.222 6.057"}],["path",{d:"M18.796 18.81A4.5 4.5 0 0 1 17.5 19H9A7 7 0 0 1 5.79 5.78"}],["path",{d:"m2 2 20 20"}]];var Zo=[["rect",{width:"14",height:"14",x:"8",y:"8",rx:"2",ry:"2"}],["path",{d:"M4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2"}]];var Yo=[["path",{d:"M12 15V3"}],["path",{d:"M21 15v4a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2v-4"}],["path",{d:"m7 10 5 5 5-5"}]];var Xo=[["path",{d:"M15 3h6v6"}],["path",{d:"M10 14 21 3"}],["path",{d:"M18 13v6a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V8a2 2 0 0 1 2-2h6"}]];var Qo=[["path",{d:"M12.83 2.18a2 2 0 0 0-1.66 0L2.6 6.08a1 1 0 0 0 0 1.83l8.58 3.91a2 2 0 0 0 1.66 0l8.58-3.9a1 1 0 0 0 0-1.83z"}],["path",{d:"M2 12a1 1 0 0 0 .58.91l8.6 3.91a2 2 0 0 0 1.65 0l8.58-3.9A1 1 0 0 0 22 12"}],["path",{d:"M2 17a1 1 0 0 0 .58.91l8.6 3.91a2 2 0 0 0 1.65 0l8.58-3.9A1 1 0 0 0 22 17"}]];var er=[["path",{d:"M3 5h.01"}],["path",{d:"M3 12h.01"}],["path",{d:"M3 19h.01"}],["path",{d:"M8 5h13"}],["path",{d:"M8 12h13"}],["path",{d:"M8 19h13"}]];var tr=[["path",{d:"M21 12a9 9 0 1 1-6.219-8.56"}]];var nr=[["path",{d:"M12 17v5"}],["path",{d:"M9 10.76a2 2 0 0 1-1.11 1.79l-1.78.9A2 2 0 0 0 5 15.24V16a1 1 0 0 0 1 1h12a1 1 0 0 0 1-1v-.76a2 2 0 0 0-1.11-1.79l-1.78-.9A2 2 0 0 1 15 10.76V7a1 1 0 0 1 1-1 2 2 0 0 0 0-4H8a2 2 0 0 0 0 4 1 1 0 0 1 1 1z"}]];var sr=[["path",{d:"m21 21-4.34-4.34"}],["circle",{cx:"11",cy:"11",r:"8"}]];var or=[["rect",{width:"20",height:"8",x:"2",y:"2",rx:"2",ry:"2"}],["rect",{width:"20",height:"8",x:"2",y:"14",rx:"2",ry:"2"}],["line",{x1:"6",x2:"6.01",y1:"6",y2:"6"}],["line",{x1:"6",x2:"6.01",y1:"18",y2:"18"}]];var rr=[["path",{d:"M3 9h18"}],["path",{d:"M9 3v18"}],["rect",{x:"3",y:"3",width:"18",height:"18",rx:"2"}]];var ir=[["path",{d:"m21.73 18-8-14a2 2 0 0 0-3.48 0l-8 14A2 2 0 0 0 4 21h16a2 2 0 0 0 1.73-3"}],["path",{d:"M12 9v4"}],["path",{d:"M12 17h.01"}]];var ar=[["path",{d:"M18 6 6 18"}],["path",{d:"m6 6 12 12"}]];var Aa={arrowDown:Ro,arrowUp:Fo,ban:Do,bell:Io,boxes:Bo,check:Uo,chevronDown:Ho,circleAlert:Wo,circleCheck:qo,circleDashed:Ko,circleHelp:Vo,circleUser:Go,clock:zo,cloudOff:Jo,copy:Zo,download:Yo,externalLink:Xo,layers:Qo,list:er,loader:tr,pin:nr,search:sr,server:or,table:rr,triangleAlert:ir,x:ar};function S({name:e,size:t=16,class:n=""}){return a`
<svg class=${`icon ${n}`} width=${t} height=${t} viewBox="0 0 24 24" aria-hidden="true">
${Aa[e].map(([s,o])=>a`<${s} ...${o} />`)}
</svg>`}var Ca={live:{icon:"circleCheck",level:"ok"},late:{icon:"clock",level:"progress"},offline:{icon:"cloudOff",level:"off"},never:{icon:"circleDashed",level:"off"},denied:{icon:"ban",level:"off"}},Ta={ok:"circleCheck",progress:"loader",bad:"circleAlert"};function Tt({state:e}){let{icon:t,level:n}=Ca[e]??{icon:"circleHelp",level:"off"};return a`<span class=${`badge badge--${n}`}>${S({name:t})}${e}</span>`}function ie({state:e,health:t}){let n=Ue({health:t,state:e});return a`<span class=${`badge badge--${n}`}>${S({name:Ta[n]})}<span>${e||t}</span></span>`}function lr(e){let t=e.length>24?e.length-10:e.length;return[e.slice(0,t),e.slice(t)]}function te({text:e}){let[t,n]=lr(e);return a`<span class="name" title=${e}><span class="name__start">${t}</span>${n&&a`<span class="name__end">${n}</span>`}</span>`}var Ma=/(?:"[^"]*"?|[^\s"])+/g,pr=/^([A-Za-z0-9_./-]+)(!=|!~|>=|<=|=|~|>|<)([\s\S]*)$/;function Mt(e){return(e.match(Ma)??[]).map(Ea).filter(t=>t.values.some(Boolean))}function Ea(e){let t=pr.exec(e);if(t){let[,o,r,i]=t,l=i.match(/"[^"]*"?|[^,"]+/g)??[];return{key:o,operator:r,values:l.map(Qn),source:e}}let n=e.length>1&&e.startsWith("-"),s=Qn(n?e.slice(1):e);return{key:"",operator:n?"-text":"text",values:[s],source:e}}function dr(e,t){return e.labels&&Object.hasOwn(e.labels,t)?String(e.labels[t]):""}function Qn(e){return e.replaceAll('"',"").toLowerCase()}function es(e){return/[\s",]/.test(e)?`"${e.replaceAll('"',"")}"`:e}function ts(e,t){let n=e.map(s=>mr(s,t));return n.length===1?n[0]:s=>{for(let o of n)if(!o(s))return!1;return!0}}function fr(e,t,n){return e.map(o=>{let r=ts(e.filter(l=>l!==o),t),i=mr(o,t);return{term:o,hidden:n.filter(l=>r(l)&&!i(l)).length}}).filter(o=>o.hidden).sort((o,r)=>r.hidden-o.hidden)}var cr=new WeakMap;function mr({key:e,operator:t,values:n},s){if(t==="text"||t==="-text"){let i=t==="text";return l=>Oa(l,s).includes(n[0])===i}let o=s.find(i=>i.id===e),r=o?i=>o.text(i).toLowerCase():i=>dr(i,e).toLowerCase();if(t===">"||t==="<"||t===">="||t==="<="){let i=Number.parseFloat(n[0]),l=o?.value??r;return p=>{let d=l(p),u=typeof d=="number"?d:Number.parseFloat(d??"");return t===">"?u>i:t==="<"?u<i:t===">="?u>=i:u<=i}}switch(t){case"=":return n.length===1?i=>r(i)===n[0]:i=>n.includes(r(i));case"!=":return i=>!n.includes(r(i));case"~":return i=>n.some(l=>r(i).includes(l));default:return i=>!n.some(l=>r(i).includes(l))}}function Oa(e,t){let n=cr.get(e);if(n===void 0){let s=t.filter(o=>!o.noFilter).map(o=>o.text(e));if(e.labels)for(let[o,r]of Object.entries(e.labels))s.push(`${o}=${r}`);n=s.join(`
`).toLowerCase(),cr.set(e,n)}return n}function hr(e,t,n,s=8){let o=pr.exec(e);if(!o)return ja(e.toLowerCase(),t,n,s);let[,r,i,l]=o,p=l.lastIndexOf(","),[d,u]=[l.slice(0,p+1),l.slice(p+1).replaceAll('"',"").toLowerCase()],m=t.find(h=>h.id===r),f=$r(n,`=${r}`,h=>{for(let y of n){let _=m?m.text(y):dr(y,r);_&&h.set(_,(h.get(_)??0)+1)}}),c=new Set((d.match(/"[^"]*"|[^,"]+/g)??[]).map(Qn));return[...f].filter(([h])=>!c.has(h.toLowerCase())).filter(([h])=>h.toLowerCase().includes(u)&&h.toLowerCase()!==u).sort(([h,y],[_,v])=>Number(_.toLowerCase().startsWith(u))-Number(h.toLowerCase().startsWith(u))||v-y).slice(0,s).map(([h,y])=>({text:`${r}${i}${d}${es(h)}`,label:h,count:y}))}function ja(e,t,n,s){let o=ns(n);return[...new Map([...t.filter(i=>!i.noFilter).map(i=>[i.id,0]),...o])].filter(([i])=>i.toLowerCase().includes(e)).sort(([i],[l])=>Number(l.toLowerCase().startsWith(e))-Number(i.toLowerCase().startsWith(e))).slice(0,s).map(([i,l])=>({text:`${i}=`,label:i,count:l}))}var ur=new WeakMap;function $r(e,t,n){let s=ur.get(e);s||(s=new Map,ur.set(e,s));let o=s.get(t);return o||(o=new Map,n(o),s.set(t,o)),o}function ns(e){return $r(e,"",t=>{for(let n of e)for(let s in n.labels)t.set(s,(t.get(s)??0)+1)})}var _r=[["d",86400],["h",3600],["m",60],["s",1]];function ne(e){let t=Math.max(0,Math.floor(e));if(t<120)return`${t}s`;for(let n=0;n<3;n+=1){let[s,o]=_r[n];if(t<o)continue;let r=Math.floor(t/o),[i,l]=_r[n+1],p=Math.floor(t%o/l);return s==="m"||!p||r>=10?`${r}${s}`:`${r}${s} ${p}${i}`}return`${t}s`}function an(e){return typeof e=="number"?Math.abs(e)<864e10?e:Number.NaN:typeof e=="string"&&e?Date.parse(e)/1e3:Number.NaN}function ss(e){return Math.abs(e)<864e10?new Date(e*1e3).toISOString():""}var vr=new Map;function os(e,t){if(!(Math.abs(e)<864e10))return"";let n=vr.get(t);n||(n=new Intl.DateTimeFormat("en-CA",{year:"numeric",month:"2-digit",day:"2-digit",hour:"2-digit",minute:"2-digit",second:"2-digit",hourCycle:"h23",timeZoneName:"short",...t?{timeZone:t}:{}}),vr.set(t,n));let s={};for(let{type:o,value:r}of n.formatToParts(e*1e3))s[o]=r;return`${s.year}-${s.month}-${s.day} ${s.hour}:${s.minute}:${s.second} ${s.timeZoneName}`}function H({at:e,suffix:t=""}){if(!Number.isFinite(e))return a`<span class="muted">–</span>`;let n=x()-e;(n<120?pe:Jt).value;let s=os(e,de.value);return a`<time class="age" dateTime=${gr(e)} title=${s}>${ne(n)}${t}</time>`}function ln({at:e}){return a`<time dateTime=${gr(e)}>${os(e,de.value)}</time>`}function gr(e){return Math.abs(e)<864e10?new Date(e*1e3).toISOString():""}var Na=/^[A-Za-z0-9][A-Za-z0-9._:@-]*$/;function Ce(e,...t){return t.every(n=>Na.test(n))?e.reduce((n,s,o)=>n+(t[o-1]??"")+s):""}function br(e){return e.replaceAll(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,"")}var La=5e3,yr=w(""),cn="",rs=0;function kr(e){cn=e,rs||wr()}function wr(){yr.value=cn,cn="",rs=setTimeout(()=>{rs=0,cn&&wr()},La)}function xr(){return a`<div class="unseen" role="status">${yr}</div>`}function ge({text:e,label:t,children:n}){let[s,o]=j(!1);async function r(){await navigator.clipboard.writeText(br(e)),kr(`copied ${t}`),o(!0),setTimeout(()=>o(!1),1500)}return a`
<button type="button" class=${n?"button button--quiet":"icon-button"} onClick=${r}
aria-label=${n?null:`copy ${t}`} title=${`copy ${t}`}>
<${S} name=${s?"check":"copy"} size=${14} />${n}
</button>`}function Te({text:e}){return e?a`
<div class="command"><code>${e}</code><${ge} text=${e} label="command" /></div>`:null}function Sr(e,t,n){let s=document.createElement("a");s.href=URL.createObjectURL(new Blob([t],{type:n})),s.download=e,s.click(),setTimeout(()=>URL.revokeObjectURL(s.href),1e3)}function se({label:e="loading",rows:t=8}){let[n,s]=j(!1);return N(()=>{let o=setTimeout(()=>s(!0),200);return()=>clearTimeout(o)},[]),a`
<div class="skeleton" role="status" aria-label=${e}>
${n&&Array.from({length:t},(o,r)=>a`<div class="skeleton__row" key=${r}></div>`)}
</div>`}function K({icon:e="circleCheck",title:t,children:n}){return a`
<div class="empty">
<${S} name=${e} size=${28} class="empty__icon" />
<h2 class="empty__title">${t}</h2>
${n}
</div>`}function Xe({terms:e,columns:t,rows:n,noun:s}){let o=fr(e,t,n),r=e.map(i=>i.source);return a`
<${K} icon="search" title=${`No ${s} match this filter`}>
${o.slice(0,3).map(({term:i,hidden:l})=>a`
<p key=${i.source}>${l} hidden by <span class="chip">${i.source}</span>${" "}
<a href=${U({q:r.filter(p=>p!==i.source).join(" ")})}>remove</a></p>`)}
<p><button type="button" class="button" onClick=${()=>R(U({q:null}))}>Clear filter</button></p>
<//>`}function Ar({cluster:e,resources:t}){let[n,s]=j("");return N(()=>{Q("/api/v1/clusters",{clusters:e}).then(o=>s(o.clusters[0]?.reason??""),()=>{})},[e]),n?a`<${K} icon="triangleAlert" title=${`kas cannot check your rights in ${e}`}><p>${n}</p><//>`:a`
<${K} icon="ban" title=${`You may not list ${t.join(", ")} in all namespaces of ${e}`}>
<p>Objects of namespaces where you may list them appear here. To check a right in this cluster:</p>
${t.slice(0,3).map(o=>a`
<${Te} key=${o} text=${`kubectl auth can-i list ${o} --all-namespaces`} />`)}
<//>`}function oe({what:e,status:t,message:n,since:s,retryAt:o=0,retry:r}){pe.value;let i=o-x(),p={[-1]:"error in this browser",0:"no response from kas",403:"refused by kas"}[t]??`error of kas (${t})`;return a`
<${K} icon=${t===403?"ban":"triangleAlert"} title=${`${e}: ${p}`}>
<p>${n}</p>
<p class="muted">for <${H} at=${s} />${i>0&&`, next attempt in ${ne(i)}`}</p>
<p><button type="button" class="button" onClick=${r}>Retry now</button></p>
<//>`}var Pa={live:"its rows are not available",never:"it has never sent data",denied:"you have no access to it"};function Qe({incomplete:e,missingKas:t=0,isCut:n=!1}){if(!e.length&&!t&&!n)return null;let s=[];return e.length&&s.push(e.length===1?`${e[0].name}: ${e[0].reason||Pa[e[0].state]||e[0].state}`:`${e.length} clusters are incomplete`),t&&s.push(`${t} kas did not respond`),n&&s.push("there are more rows than this list can have: filter by namespace"),a`
<details class="notice notice--warning">
<summary><${S} name="triangleAlert" /> <span>${s.join("; ")}</span></summary>
<ul class="incomplete">
${e.slice(0,100).map(o=>a`
<li key=${o.name}><strong>${o.name}</strong> ${o.state}${o.reason?`: ${o.reason}`:""}
${o.lastSeen?a`, last data <${H} at=${o.lastSeen} suffix=" ago" />`:""}</li>`)}
${e.length>100&&a`<li>and ${e.length-100} more</li>`}
</ul>
</details>`}function Tr(e,t){let n=[e.map(s=>Cr(s.title))];for(let s of t)n.push(e.map(o=>Cr(o.text(s))));return n.map(s=>`${s.join(",")}\r
`).join("")}function Cr(e){let t=/^[=+\-@\t\r]/.test(e)?`'${e}`:e;return/[",\r\n]/.test(t)?`"${t.replaceAll('"','""')}"`:t}function et({name:e,columns:t,rows:n}){return a`
<button type="button" class="icon-button" onClick=${()=>Sr(`${e}.csv`,Tr(t,n),"text/csv")} aria-label="save as CSV" title="save as CSV"
disabled=${!n.length}><${S} name="download" /></button>`}var Ra=60;function tt({columns:e,rows:t,hits:n,total:s,noun:o,example:r,children:i}){let l=L.value.params.get("q")??"",[p,d]=j(!1),[u,m]=j(-1),[,f]=j(0),c=q(null),h=q(0),y=q(null),_=q(!1);(!y.current||!h.current&&y.current.query!==l)&&(y.current={query:l,sources:Mt(l).map(b=>b.source),draft:""});let{sources:v,draft:g}=y.current;N(()=>()=>clearTimeout(h.current),[]);function E(b,k){clearTimeout(h.current),_.current||=!g;let z=[...b,k].filter(Boolean).join(" ");y.current={query:z,sources:b,draft:k};function J(){h.current=0,R(U({q:z||null,open:null}),{replace:!_.current}),_.current=!1,f(Z=>Z+1)}k?(h.current=setTimeout(J,Ra),f(Z=>Z+1)):J()}function A(b){m(-1),/(?:!=|!~|>=|<=|=|~|>|<)$/.test(b)?E(v,b):E([...v,b],"")}let F=p?hr(g,e,t):[];function le(b){if(b.key==="ArrowDown"||b.key==="ArrowUp"){b.preventDefault(),d(!0);let k=b.key==="ArrowDown"?1:-1;m(z=>F.length?(z+k+F.length+(z<0&&k<0?1:0))%F.length:-1)}else b.key==="Tab"&&p&&g&&F.length&&u>=0?(b.preventDefault(),A(F[u].text)):b.key==="Enter"?u>=0&&F[u]?A(F[u].text):g.trim()&&(A(g.trim()),d(!1)):b.key===" "&&Fa(g)?(b.preventDefault(),A(g)):b.key==="Escape"?(b.stopPropagation(),d(!1),u>=0?m(-1):c.current?.blur()):b.key==="Backspace"&&!g&&v.length&&(b.preventDefault(),E(v.slice(0,-1),v[v.length-1]))}return a`
<div class="toolbar">
<div class="filter">
<${S} name="search" class="filter__icon" />
<div class="filter__terms">
${v.map((b,k)=>a`
<span class="chip chip--term" key=${`${b}${k}`}>${b}<button type="button"
aria-label=${`remove filter ${b}`} onClick=${()=>{E(v.filter((z,J)=>J!==k),g),c.current?.focus()}}><${S} name="x" size=${12} /></button></span>`)}
<input ref=${c} id="filter" type="text" role="combobox" aria-label=${`filter ${o}`} spellcheck="false"
autocomplete="off" autocapitalize="off" placeholder=${v.length?"":`Filter, such as ${r}`}
aria-expanded=${F.length>0} aria-controls="filter-offers" aria-autocomplete="list"
aria-activedescendant=${u>=0&&F.length?`filter-offer-${u}`:null} value=${g}
onInput=${b=>{d(!0),m(-1),E(v,b.target.value.replace(/^\s+/,""))}}
onKeyDown=${le} onFocus=${()=>d(!!g)} onBlur=${()=>d(!1)} />
</div>
${y.current.query&&a`
<button type="button" class="icon-button" aria-label="clear filter" title="clear filter"
onClick=${()=>{E([],""),c.current?.focus()}}><${S} name="x" /></button>`}
<ul class=${ke("offers",F.length>0&&"is-open")} id="filter-offers" role="listbox"
aria-label="completions">
${F.map((b,k)=>a`
<li key=${b.text} id=${`filter-offer-${k}`} role="option" aria-selected=${k===u}
class=${ke("offer",k===u&&"is-chosen")}
onPointerDown=${z=>{z.preventDefault(),A(b.text)}}>
<span class="offer__text">${b.label}</span>${b.count>0&&a`<span class="muted">${b.count}</span>`}
</li>`)}
</ul>
</div>
<span class="hits" aria-live="off">${l?`${n.toLocaleString("en")} of `:""}${s.toLocaleString("en")} ${s===1?o.replace(/s$/,""):o}</span>
${i}
</div>`}function Fa(e){let[t]=Mt(e);return!!t&&(t.operator!=="text"||e.length>1)&&(e.match(/"/g)??[]).length%2===0}var Da=new Intl.Collator("en",{numeric:!0});function Ia(e,t,n){let s=e==null||e===""||Number.isNaN(e),o=t==null||t===""||Number.isNaN(t);if(s||o)return Number(s)-Number(o);if(typeof e=="number"&&typeof t=="number")return n*(e-t);let[r,i]=[String(e),String(t)];return r===i?0:n*Da.compare(r,i)}function is(e,t){let n=e.startsWith("-")?-1:1,s=t.find(o=>o.id===e.replace(/^-/,""));return s?{column:s,direction:n}:null}function un(e,{column:t,direction:n}){let s=e.map(o=>({row:o,value:t.value(o)}));return s.sort((o,r)=>Ia(o.value,r.value,n)||(o.row.key<r.row.key?-1:+(o.row.key>r.row.key))),s.map(o=>o.row)}function nt(e,t,n,s=[]){let{params:o}=L.value,[r,i,l]=[o.get("q")??"",o.get("sort")??"",o.get("group")??""],p=is(i,t),d=p??is(n,[...t,...s]),u=C(()=>d?un(e,d):[...e],[e,t,i,n]),m=C(()=>Mt(r),[r]),f=C(()=>m.length?u.filter(ts(m,t)):u,[u,m,t]),c=C(()=>l?Ba(f,l):f.map(h=>({key:h.key,row:h})),[f,l]);return{sort:p,terms:m,found:f,items:c,group:l,query:`${r}
${i}
${l}
${o.get("ns")??""}`}}function Ba(e,t){let n=new Map;for(let o of e){let r=o.labels&&Object.hasOwn(o.labels,t)?o.labels[t]:"",i=n.get(r);i?i.push(o):n.set(r,[o])}return[...n.keys()].sort((o,r)=>+!o-+!r||(o<r?-1:1)).flatMap(o=>{let r=n.get(o)??[];return[{key:`group/${o}`,title:o?`${t}=${o}`:`without ${t}`,count:r.length},...r.map(i=>({key:i.key,row:i}))]})}function Mr(e){return[...ns(e)].sort((t,n)=>n[1]-t[1]).slice(0,20).map(([t])=>t)}var as=100,ls=25;function Er({rows:e,columns:t,tools:n,empty:s}){let{found:o,terms:r}=nt(e,t,"name"),[i,l]=j(as),{clusters:p,lines:d}=C(()=>Ha(o),[o]),u=p.slice(0,ls);return a`
<section class="list" aria-label="applications by cluster">
<${tt} columns=${t} rows=${e} hits=${o.length} total=${e.length} noun="applications"
example="name~api cluster=berlin,paris">
${n}<${et} name="applications" columns=${t} rows=${o} />
<//>
${o.length===0&&(r.length?a`<${Xe} terms=${r} columns=${t} rows=${e} noun="applications" />`:s)}
${o.length>0&&a`
${p.length>ls&&a`
<p class="matrix-note muted">The first ${ls} of ${p.length} clusters; others: <code>cluster=</code>.</p>`}
<div class="matrix-frame" role="region" aria-label="versions by cluster" tabindex="0">
<table class="matrix">
<thead><tr><th scope="col">Application</th>${u.map(m=>a`<th key=${m} scope="col">${m}</th>`)}</tr></thead>
<tbody>
${d.slice(0,i).map(m=>a`
<tr key=${m.key}><th scope="row" title=${m.key}>${m.name} <span class="muted">${m.namespace}</span></th>
${u.map(f=>a`<${Ua} key=${f} row=${m.cells.get(f)} counts=${m.counts} />`)}</tr>`)}
</tbody>
</table>
</div>
${d.length>i&&a`<p class="matrix-note"><button type="button" class="button"
onClick=${()=>l(i+as)}>${Math.min(as,d.length-i)} more of ${d.length}</button></p>`}`}
</section>`}function Ua({row:e,counts:t}){if(!e)return a`<td><span class="muted" aria-label="not there">–</span></td>`;let n=Math.max(...t.values()),s=[...t].filter(([,i])=>i===n),o=t.size>1&&(s.length>1||e.version!==s[0][0]),r=ve(`${M}/applications`,{open:[e.cluster,e.namespace,e.name].join("/")});return a`
<td class=${o?"differs":""}>
<a class="cell-link" href=${r}>${e.version||"no version"}
${e.health&&e.health!=="current"&&a`<${ie} state=${e.health} />`}
${o&&a`<span class="muted">differs</span>`}</a>
</td>`}function Ha(e){let t=[...new Set(e.map(s=>s.cluster))].sort(),n=new Map;for(let s of e){let o=`${s.name} in ${s.namespace}`,r=n.get(o);r||(r={key:o,name:s.name,namespace:s.namespace,cells:new Map,counts:new Map},n.set(o,r)),r.cells.set(s.cluster,s),r.counts.set(s.version,(r.counts.get(s.version)??0)+1)}return{clusters:t,lines:[...n.values()]}}var Wa=/^(?:https?:\/\/|mailto:)[^\s\u0000-\u0020\u007f-\u009f|<>"'\\^`{}]+$/i,qa=/^data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,]/i;function Or(e){return typeof e=="string"&&e.length<=512&&Wa.test(e)?e:""}function jr(e){return typeof e=="string"&&e.length<=65536&&qa.test(e)?e:""}var ae=w(null);var G=w(""),Et=[["f","Fleet",`${M}/fleet`],["p","Problems",`${M}/problems`],["e","Events",`${M}/events`],["a","Applications",`${M}/applications`]],Nr=1500,Lr=0;document.addEventListener("keydown",e=>{if((e.ctrlKey||e.metaKey)&&!e.altKey&&!e.shiftKey&&e.key.toLowerCase()==="k"){e.preventDefault(),G.value=G.value==="palette"?"":"palette";return}if(e.ctrlKey||e.metaKey||e.altKey||e.defaultPrevented)return;if(e.key==="Escape"){!G.value&&L.value.params.get("open")&&!Pr(e.target)&&cs();return}if(!fe.value||G.value||Pr(e.target))return;let t=e.timeStamp-Lr<Nr&&Et.find(([n])=>n===e.key);if(Lr=e.key==="g"?e.timeStamp:-Nr,t){e.preventDefault(),R(t[2]);return}switch(e.key){case"/":document.getElementById("filter")?.focus();break;case"?":G.value="help";break;case"j":ae.peek()?.move(1);break;case"k":ae.peek()?.move(-1);break;default:return}e.preventDefault()});function cs(){let e=U({open:null}),t=document.querySelector(".table__row.is-open");R(e),t instanceof HTMLElement&&requestAnimationFrame(()=>t.focus({preventScroll:!0}))}function Pr(e){return e instanceof HTMLElement&&(e.isContentEditable||/^(?:TEXTAREA|SELECT)$/.test(e.tagName)||e instanceof HTMLInputElement&&!/^(?:checkbox|radio|button)$/.test(e.type))}function st({title:e,kind:t,children:n}){let s=q(null),o=L.value.params.get("open");return N(()=>{s.current?.focus({preventScroll:!0})},[o]),Ka(),a`
<aside class="panel" aria-label=${`${t} ${e}`}>
<header class="panel__head">
<div class="panel__title"><span class="muted">${t}</span><h2 tabindex="-1" ref=${s}>${e}</h2></div>
<${ge} text=${e} label="name" />
<button type="button" class="icon-button" aria-label="previous (k)" title="previous (k)"
onClick=${()=>ae.peek()?.move(-1)}><${S} name="arrowUp" /></button>
<button type="button" class="icon-button" aria-label="next (j)" title="next (j)"
onClick=${()=>ae.peek()?.move(1)}><${S} name="arrowDown" /></button>
<button type="button" class="icon-button" aria-label="close (Esc)" title="close (Esc)"
onClick=${cs}><${S} name="x" /></button>
</header>
${n}
</aside>`}function Ka(){let[e,t]=j(!1);N(()=>{let n=matchMedia("(max-width: 52rem)"),s=()=>t(n.matches);return s(),n.addEventListener("change",s),()=>n.removeEventListener("change",s)},[]),N(()=>{if(!e)return;let n=document.querySelectorAll(".nav, .footer, .with-panel > :not(.panel), .heading, .tabs");for(let s of n)s.setAttribute("inert","");return()=>{for(let s of n)s.removeAttribute("inert")}},[e])}function Rr({row:e}){return a`
<${st} title=${e.name} kind="Application">
<section class="panel__section">
${e.health&&a`<div><${ie} state=${e.health} /></div>`}
<dl class="facts">
<div><dt>Cluster</dt><dd><a href=${T(e.cluster)}>${e.cluster}</a></dd></div>
<div><dt>Namespace</dt><dd>${e.namespace}</dd></div>
${e.version&&a`<div><dt>Version</dt><dd>${e.version}</dd></div>`}
${e.source&&a`<div><dt>Source</dt><dd>${e.source}</dd></div>`}
${e.images.map(t=>a`
<div key=${t}><dt>Image</dt><dd><code>${t}</code><${ge} text=${t} label="image" /></dd></div>`)}
</dl>
</section>
<section class="panel__section"><h3>Workloads</h3>
${!e.workloads.length&&a`<p class="muted">No workload that you may see belongs to it.</p>`}
${e.workloads.map(t=>a`
<div class="event" key=${`${t.kind}/${t.name}`}>
<span class="event__line"><a href=${T(e.cluster,"workloads",{open:[t.kind,e.namespace,t.name].join("/")})}>${t.kind} ${t.name}</a><span>${t.ready}/${t.wanted}</span></span>
${t.health!=="current"&&a`<p><${ie} state=${t.health} /> ${t.reason}</p>`}
</div>`)}
</section>
${e.declarations.map(t=>a`
<${Va} key=${`${t.kind}${t.namespace}${t.name}`} one=${t} />`)}
<//>`}function Va({one:e}){let t=Object.entries(e.links??{}).map(([i,l])=>[Or(i),l]).filter(([i])=>i),n=jr(e.icon),s=[e.repository,e.path].filter(Boolean).join(" "),o=[["Type",e.type],["Version",e.version],["From",s&&a`<code>${s}</code>`],["Wanted",e.wanted],["Applied",e.revision&&a`<code>${e.revision}</code>`],["Target",e.target!==e.namespace&&e.target],["Owners",e.owners?.join(", ")],...Object.entries(e.info??{}),...Object.entries(e.references??{}),["Not checked",e.unknownComponents?.join(", ")]],r=Object.entries(e.stated??{});return a`
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
<a key=${i} href=${i} target="_blank" rel="noopener noreferrer"><${S} name="externalLink" size=${14} />${l||i}</a>`)}</div>`}
</section>`}var Ga=640,za=100,ot=6,Fr={comfortable:40,compact:32,narrow:64};function pn({label:e,columns:t,items:n,sort:s,link:o,rowTitle:r,narrow:i,openKey:l,query:p}){let d=q(null),u=tl(d),m=u<Ga,f=m?Fr.narrow:Fr[ye.value]??40,[c,h,y]=Qa(n,p),[_,v]=el(d,c.length,f),[g,E]=j(""),A=q(-1),F=C(()=>t.filter($=>!$.isHidden&&($.least??0)<=u),[t,u]),le=F.map($=>$.width).join(" "),b=Math.ceil((v-_)/16)*16,k=Math.max(0,c.findIndex($=>$.key===(l||g)));function z($){let Y=c[$];Y&&(Dr(d.current,$,f),A.current=$,E(Y.key),J(X=>X+1))}let[,J]=j(0);ft(()=>{if(A.current<0)return;let $=d.current?.querySelector(`[data-index="${A.current}"]`);$ instanceof HTMLElement&&(A.current=-1,$.focus({preventScroll:!0}))});function Z($){if(l){let X=c.findIndex(hi=>hi.key===l)+$;for(;c[X]&&!("row"in c[X]);)X+=$;let $e=c[X];if(!$e||!("row"in $e))return;Dr(d.current,X,f),R(o($e.row),{replace:!0})}else{let Y=d.current?.contains(document.activeElement);z(Y?Math.min(c.length-1,Math.max(0,k+$)):k)}}N(()=>{let $={move:Z,objects:()=>n.flatMap(Y=>"row"in Y?[{...r(Y.row),href:o(Y.row)}]:[])};return ae.value=$,()=>{ae.peek()===$&&(ae.value=null)}});function ce($){if($.ctrlKey||$.metaKey||$.altKey)return;let Y=Math.max(1,Math.floor(innerHeight/f)-3),$e={ArrowDown:1,ArrowUp:-1,PageDown:Y,PageUp:-Y,Home:-c.length,End:c.length}[$.key]??(fe.value?{j:1,k:-1}[$.key]:0);$e?($.preventDefault(),$.stopPropagation(),l?Z($e):z(Math.min(c.length-1,Math.max(0,k+$e)))):$.key==="Enter"&&$.target instanceof HTMLElement&&$.target.role==="row"&&$.target.querySelector("a")?.click()}return a`
<div class="table-frame" ...${y.events}>
${h>0&&a`
<button type="button" class="newer" onClick=${y.release}>${h} newer, show</button>`}
<div class=${ke("table",m&&"table--narrow")} role="grid" aria-label=${e}
aria-rowcount=${c.length+1} aria-colcount=${m?1:F.length}
style=${{"--columns":m?"1fr":le,"--row":`${f}px`}}>
<div class="table__head" role="rowgroup">
<div class="table__row table__row--head" role="row" aria-rowindex="1">
${m?a`<div role="columnheader" class="cell"><${Xa} columns=${t} sort=${s} /></div>`:F.map($=>a`<${Za} key=${$.id} column=${$} sort=${s} />`)}
</div>
</div>
<div class="table__body" role="rowgroup" ref=${d} onKeyDown=${ce}
style=${{height:`${c.length*f}px`,paddingTop:`${_*f}px`}}>
${c.slice(_,v).map(($,Y)=>{let X=_+Y,$e=X===k;return"row"in $?a`<${us} key=${X%b} item=${$} row=${$.row} isGone=${$.isGone} index=${X} columns=${F}
tracks=${le} isNarrow=${m} narrow=${i} isActive=${$e} isOpen=${$.key===l}
href=${o($.row)} onFocus=${E} />`:a`<${Ja} key=${X%b} item=${$} index=${X} span=${F.length} isActive=${$e}
onFocus=${E} />`})}
</div>
</div>
</div>`}var us=class extends ue{_drawn={key:"",texts:[],tints:[],columns:null};shouldComponentUpdate(t){let n=this.props;return t.row!==n.row||t.isActive!==n.isActive||t.isOpen!==n.isOpen||t.index!==n.index||t.tracks!==n.tracks||t.isNarrow!==n.isNarrow||t.isGone!==n.isGone||t.href!==n.href}render({item:t,row:n,index:s,columns:o,isNarrow:r,narrow:i,isActive:l,isOpen:p,isGone:d,href:u,onFocus:m}){let f=l?0:-1;return(this._drawn.key!==n.key||this._drawn.columns!==o)&&(this._drawn={key:n.key,texts:[],tints:[],columns:o}),a`
<div class=${ke("table__row",p&&"is-open",d&&"is-gone")} role="row" tabindex=${f}
aria-rowindex=${s+2} aria-selected=${p} data-index=${s} onFocusIn=${()=>m(t.key)}>
${r?a`<div class="cell cell--narrow" role="gridcell">${i(n,f,u)}</div>`:o.map((c,h)=>this._cell(c,h,n,f,u))}
</div>`}_cell(t,n,s,o,r){let{texts:i,tints:l}=this._drawn,p=t.text(s);i[n]&&i[n]!==p&&(l[n]=l[n]===1?2:1),i[n]=p;let d=t.cell?t.cell(s,o):p;return a`
<div class=${t.align==="end"?"cell cell--end":"cell"} role="gridcell"
title=${t.cell||p.length<9?null:p} data-tint=${l[n]||null}>
${t.isMain?a`<a class="row-link" href=${r} tabindex="-1">${d}</a>`:d}
</div>`}};function Ja({item:e,index:t,span:n,isActive:s,onFocus:o}){return a`
<div class="table__row table__row--group" role="row" aria-rowindex=${t+2} tabindex=${s?0:-1}
data-index=${t} onFocusIn=${()=>o(e.key)}>
<div class="cell" role="gridcell" aria-colspan=${n}>
<strong>${e.title}</strong> <span class="muted">${e.count}</span>${e.detail}
</div>
</div>`}function Za({column:e,sort:t}){let n=t?.column.id===e.id?t.direction:0,s=n===1?"ascending":n===-1?"descending":null;return a`
<div class=${ke("cell",e.align==="end"&&"cell--end")} role="columnheader" aria-sort=${s}>
<button type="button" class="sort-button" onClick=${()=>R(U({sort:Ya(e,n)}))}>
${e.title}${n!==0&&a`<${S} name=${n===1?"arrowUp":"arrowDown"} size=${12} />`}
</button>
</div>`}function Ya(e,t){let n=e.largestFirst?-1:1,s=t===0?n:t===n?-n:0;return s===0?null:`${s<0?"-":""}${e.id}`}function Xa({columns:e,sort:t}){let n=t?`${t.direction<0?"-":""}${t.column.id}`:"";return a`
<label class="sort-menu">Sorted by${" "}
<select value=${n} onChange=${o=>R(U({sort:o.target.value}))}>
<option value="">worst first</option>
${e.flatMap(o=>[o.id,`-${o.id}`].map(r=>a`
<option key=${r} value=${r}>${o.title.toLowerCase()||o.id} ${r[0]==="-"?"↓":"↑"}</option>`))}
</select>
</label>`}function Qa(e,t){let[n,s]=j(!1),o=q({query:t,items:e}),r=q({pointer:!1,focus:!1});function i(){s(r.current.pointer||r.current.focus)}let l={events:{onPointerEnter:u=>{u.pointerType==="mouse"&&(r.current.pointer=!0,i())},onPointerLeave:()=>{r.current.pointer=!1,i()},onFocusIn:u=>{r.current.focus=u.target instanceof Element&&u.target.matches(":focus-visible"),i()},onFocusOut:u=>{u.relatedTarget instanceof Node&&u.currentTarget.contains(u.relatedTarget)||(r.current.focus=!1,i())}},release:()=>{o.current={query:t,items:e},s(!1),setTimeout(i)}};if(!n||o.current.query!==t||!o.current.items.length)return o.current={query:t,items:e},[e,0,l];let p=new Map(e.map(u=>[u.key,u]));return[o.current.items.map(u=>{let m=p.get(u.key);return m?(p.delete(u.key),m):"row"in u?{...u,isGone:!0}:u}),p.size,l]}function el(e,t,n){let[s,o]=j([0,40]);return ft(()=>{function i(){if(!e.current)return;let l=e.current.getBoundingClientRect().top,p=Math.max(0,Math.floor(-l/n/ot)*ot-ot),d=Math.ceil((innerHeight-l)/n/ot)*ot+ot;o(u=>u[0]===p&&u[1]===d?u:[p,d])}return i(),addEventListener("scroll",i,{passive:!0}),addEventListener("resize",i),()=>{removeEventListener("scroll",i),removeEventListener("resize",i)}},[n]),t<=za?[0,t]:[Math.min(s[0],Math.max(0,t-1)),Math.min(t,s[1])]}function tl(e){let[t,n]=j(()=>Math.min(innerWidth,4e3));return ft(()=>{if(!e.current)return;let s=new ResizeObserver(([o])=>n(Math.round(o.contentRect.width)));return s.observe(e.current),n(e.current.clientWidth),()=>s.disconnect()},[]),t}function Dr(e,t,n){if(!e)return;let s=e.getBoundingClientRect().top+t*n,o=110,r=innerHeight-n-70;s<o?scrollBy(0,s-o):s>r&&scrollBy(0,s-r),L.peek()}var Br={bad:2,progress:1,ok:0},$s=e=>e.state||e.health||"",ps={id:"state",title:"State",width:"minmax(7.5rem, 11.5rem)",text:$s,largestFirst:!0,value:e=>Br[Ue(e)],cell:e=>ie({state:$s(e),health:e.health})},dn={id:"name",title:"Name",width:"minmax(9rem, 2fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>te({text:e.name})},Ir={id:"kind",title:"Kind",width:"7rem",least:820,text:e=>e.kind,value:e=>e.kind},fn={id:"namespace",title:"Namespace",width:"minmax(6rem, 1fr)",text:e=>e.namespace,value:e=>e.namespace},ds={id:"reason",title:"Reason",width:"minmax(8rem, 2fr)",least:980,text:e=>e.reason??"",value:e=>e.reason,cell:e=>a`<span class="muted" title=${e.reason??""}>${e.reason??""}</span>`},fs={id:"age",title:"Age",width:"5rem",align:"end",least:700,noFilter:!0,text:e=>e.created??"",value:e=>-e.createdAt,cell:e=>a`<${H} at=${e.createdAt} />`},ms={id:"health",title:"Health",width:"0",isHidden:!0,noFilter:!0,text:e=>e.health??"",value:e=>e.health},rt={id:"cluster",title:"Cluster",width:"minmax(7rem, 1fr)",text:e=>e.cluster,value:e=>e.cluster,cell:(e,t)=>a`<a tabindex=${t} href=${T(e.cluster)}>${e.cluster}</a>`},it={id:"trouble",title:"",width:"0",text:()=>"",isHidden:!0,value:e=>Br[Ue(e)]*1e12+(e.sinceAt||e.createdAt||0)};function mn(e){return e.wanted===void 0?"":`${e.ready}/${e.wanted}`}function hs(e){let n=(e.images?.[e.images.length-1]??"").split("@")[0].split("/").pop()??"";return n.includes(":")?n.slice(n.indexOf(":")+1):""}var nl=(e,t)=>e?`${e}${t}`:"";function _s(e){let t=/^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$/.exec(String(e??"")),n={m:.001,Ki:2**10,Mi:2**20,Gi:2**30,Ti:2**40,k:1e3,M:1e6,G:1e9,T:1e12};return t?Number(t[1])*(n[t[2]]??1):null}function sl(e){let t=_s(e);return t===null?"":`${(t/2**30).toLocaleString("en",{maximumFractionDigits:1})} GiB`}var qe={workloads:[ps,dn,Ir,fn,{id:"ready",title:"Ready",width:"4.5rem",align:"end",text:mn,noFilter:!0,value:e=>e.wanted?e.ready/e.wanted:null},{id:"version",title:"Version",width:"7rem",least:820,text:hs,value:hs,cell:e=>a`<span title=${(e.images??[]).join(`
`)}>${hs(e)}</span>`},ds,fs,ms,{id:"image",title:"Image",width:"0",isHidden:!0,text:e=>(e.images??[]).join(" "),value:e=>e.images?.[0]}],nodes:[ps,dn,{id:"version",title:"Version",width:"7rem",text:e=>e.version??"",value:e=>e.version},{id:"cpu",title:"CPU",width:"4rem",align:"end",noFilter:!0,text:e=>e.capacity?.cpu??"",value:e=>_s(e.capacity?.cpu),largestFirst:!0},{id:"memory",title:"Memory",width:"6rem",align:"end",noFilter:!0,text:e=>sl(e.capacity?.memory),value:e=>_s(e.capacity?.memory),largestFirst:!0},{...ds,text:e=>[e.reason,...e.pressures??[]].filter(Boolean).join(", "),cell:e=>a`<span class="muted">${[e.reason,...e.pressures??[]].filter(Boolean).join(", ")}</span>`},{id:"os",title:"System",width:"minmax(6rem, 1fr)",least:1100,text:e=>e.os??"",value:e=>e.os},fs,ms],services:[dn,fn,{id:"type",title:"Type",width:"8rem",text:e=>e.type??"",value:e=>e.type},{id:"ports",title:"Ports",width:"minmax(4rem, 8rem)",text:e=>(e.ports??[]).join(", "),value:e=>e.ports?.[0],noFilter:!0},{id:"addresses",title:"Addresses",width:"minmax(8rem, 2fr)",least:760,text:e=>(e.addresses??[]).join(", "),value:e=>e.addresses?.[0]},fs],problems:[ps,dn,Ir,fn,ds,{id:"restarts",title:"Restarts",width:"5.5rem",align:"end",least:1100,noFilter:!0,largestFirst:!0,text:e=>nl(e.restarts,""),value:e=>e.restarts},{id:"since",title:"Since",width:"5rem",align:"end",noFilter:!0,text:e=>ss(e.sinceAt),value:e=>-e.sinceAt,cell:e=>a`<${H} at=${e.sinceAt} />`},ms,{id:"node",title:"Node",width:"0",isHidden:!0,text:e=>e.node??"",value:e=>e.node},{id:"owner",title:"Owner",width:"0",isHidden:!0,text:e=>e.owner??"",value:e=>e.owner}],events:[{id:"last",title:"Last",width:"4.75rem",noFilter:!0,text:e=>ss(e.lastAt),value:e=>-e.lastAt,cell:e=>a`<${H} at=${e.lastAt} />`},{id:"reason",title:"Reason",width:"minmax(8rem, 1fr)",text:e=>e.reason??"",value:e=>e.reason,isMain:!0},{id:"object",title:"Object",width:"minmax(9rem, 1.6fr)",text:e=>e.object??"",value:e=>e.object,cell:e=>te({text:e.object??""})},fn,{id:"count",title:"Count",width:"7.5rem",align:"end",noFilter:!0,largestFirst:!0,text:e=>`${e.count}`,value:e=>e.count,cell:e=>a`${e.count}${e.lastAt-e.firstAt>=60&&a` <span class="muted">in ${ne(e.lastAt-e.firstAt)}</span>`}`},{id:"message",title:"Message",width:"minmax(10rem, 2.6fr)",least:900,text:e=>e.message??"",value:e=>e.message,cell:e=>a`<span class="muted" title=${e.message}>${e.message}</span>`}]};function Ur(e,t,n=!1){let s=[n&&e.cluster,e.namespace,e.kind!=="Event"&&e.kind].filter(Boolean).join(" · ");return e.kind==="Event"?a`
<span class="narrow__main">
<a class="row-link" href=${t} tabindex="-1">${te({text:e.object??""})}</a>
<span class="muted"><${H} at=${e.lastAt} /></span>
</span>
<span class="narrow__more"><span class="muted">${e.reason} ×${e.count} · ${s}</span></span>`:a`
<span class="narrow__main">
<a class="row-link" href=${t} tabindex="-1">${te({text:e.name})}</a>
<${ie} state=${$s(e)} health=${e.health} />
</span>
<span class="narrow__more">
<span class="muted">${s}${e.reason?` · ${e.reason}`:""}</span>
<span class="muted">${e.sinceAt?a`<${H} at=${e.sinceAt} />`:mn(e)}</span>
</span>`}function Ke(e,t=!1){let n=e.kind==="Event"?[e.objectKind,e.namespace,e.objectName,e.reason]:[e.kind,e.namespace,e.name];return[...t?[e.cluster]:[],...n].join("/")}function Re({noun:e,columns:t,rows:n,order:s,hidden:o,hasCluster:r=!1,panel:i,empty:l,example:p,nameOf:d,narrow:u,tools:m}){let{params:f}=L.value,c=f.get("open")??"",h=f.get("ns")??"",y=d??(k=>Ke(k,r)),_=C(()=>{if(!h)return n;let k=new Set(h.split(","));return n.filter(z=>k.has(z.namespace))},[n,h]),{found:v,items:g,sort:E,terms:A,query:F}=nt(_,t,s,o),le=c?n.find(k=>y(k)===c):null,b=a`
<section class="list" aria-label=${e}>
<${tt} columns=${t} rows=${_} hits=${v.length} total=${_.length} noun=${e}
example=${p}>
${m}
<${ol} rows=${n} chosen=${h} />
<${et} name=${e} columns=${t} rows=${v} />
<//>
${v.length>0&&a`
<${pn} label=${e} columns=${t} items=${g} sort=${E} query=${F}
link=${k=>U({open:y(k)})} openKey=${le?.key??""}
rowTitle=${k=>({title:k.name||k.object,detail:[k.kind,k.namespace,r&&k.cluster].filter(Boolean).join(" ")})}
narrow=${u??((k,z,J)=>Ur(k,J,r))} />`}
${!v.length&&(A.length||h&&n.length?a`<${Xe} terms=${A} columns=${t} rows=${_} noun=${e} />`:l)}
</section>`;return a`
<div class=${c?"with-panel":"without-panel"}>
${b}
${c&&(le?i(le):a`
<${st} title=${c.split("/").filter(Boolean).pop()??""} kind="">
<section class="panel__section"><p>This object is gone, or you may not see it.</p></section><//>`)}
</div>`}function ol({rows:e,chosen:t}){let n=C(()=>{let i=new Map;for(let l of e)l.namespace&&i.set(l.namespace,(i.get(l.namespace)??0)+1);return[...i].sort(([l],[p])=>l<p?-1:1)},[e]),s=new Set(t.split(",").filter(Boolean));if(n.length<2&&!s.size)return null;function o(i,l){let p=new Set(s);l?p.add(i):p.delete(i),R(U({ns:[...p].sort().join(",")||null}))}let r=s.size===0?"All namespaces":s.size===1?[...s][0]:`${s.size} namespaces`;return a`
<details class="namespaces" onKeyDown=${i=>{i.key!=="Escape"||!i.currentTarget.open||(i.stopPropagation(),i.currentTarget.open=!1,i.currentTarget.querySelector("summary").focus())}} onFocusOut=${i=>{i.relatedTarget&&!i.currentTarget.contains(i.relatedTarget)&&(i.currentTarget.open=!1)}}>
<summary class="button" aria-label=${`namespaces: ${r}`}>
<span class="namespaces__label">${r}</span><${S} name="chevronDown" size=${14} /></summary>
<div class="namespaces__list" role="group" aria-label="namespaces">
${s.size>0&&a`<button type="button" class="button button--quiet" onClick=${()=>R(U({ns:null}))}>
All namespaces</button>`}
${n.map(([i,l])=>a`
<label key=${i}><input type="checkbox" checked=${s.has(i)}
onChange=${p=>o(i,p.target.checked)} />${i}
<span class="muted">${l}</span></label>`)}
</div>
</details>`}var rl={failed:3,"in progress":2,terminating:1,current:0},vs=e=>e.workloads.reduce((t,n)=>[t[0]+n.ready,t[1]+n.wanted],[0,0]),hn=[{id:"health",title:"Health",width:"7.5rem",text:e=>e.health||"unknown",largestFirst:!0,value:e=>rl[e.health]??-1,cell:e=>e.health?ie({state:e.health}):a`<span class="muted">no workloads</span>`},{id:"name",title:"Name",width:"minmax(9rem, 2fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>te({text:e.name})},{id:"namespace",title:"Namespace",width:"minmax(6rem, 1fr)",text:e=>e.namespace,value:e=>e.namespace},{id:"version",title:"Version",width:"minmax(5rem, 1fr)",text:e=>e.version,value:e=>e.version},{id:"source",title:"Source",width:"6rem",least:820,text:e=>e.source,value:e=>e.source},{id:"pods",title:"Pods",width:"5rem",align:"end",noFilter:!0,least:700,text:e=>vs(e).join("/"),value:e=>vs(e)[1],largestFirst:!0},{id:"image",title:"Images",width:"minmax(8rem, 2fr)",least:1100,text:e=>e.images.join(" "),value:e=>e.images[0],cell:e=>a`<span class="muted" title=${e.images.join(`
`)}>${e.images[0]??""}</span>`}],Hr=[hn[0],hn[1],rt,...hn.slice(2)];function $n({clusters:e}){let t=e.join(","),n=e.length!==1||t==="*",s=Po(`applications ${t}`,c=>Q("/api/v1/applications",{clusters:t},c)),{data:o,error:r,since:i,retryAt:l}=s.state.value,p=C(()=>(o?.items??[]).map(c=>({...c,key:[c.cluster,c.namespace,c.name,c.declarations.length>0].join("/"),labels:{source:c.source}})),[o]),d=n&&L.value.params.get("view")==="matrix",u=c=>[...n?[c.cluster]:[],c.namespace,c.name].join("/");if(!o&&r)return a`<${oe} what="applications" status=${r.status} message=${r.message} since=${i}
retryAt=${l} retry=${()=>s.reload()} />`;if(!o)return a`<${se} label="loading applications" />`;let m=a`
<${K} icon="boxes" title="No applications">
<p>Workloads with labels such as <code>app.kubernetes.io/name</code>, and objects of app.k8s.io, Argo CD and Flux,
appear here.</p>
<//>`,f=n&&a`
<span class="segmented" role="group" aria-label="view">
<a href=${U({view:null})} aria-current=${d?null:"true"} aria-label="list" title="list">
<${S} name="list" /></a>
<a href=${U({view:"matrix",open:null})} aria-current=${d?"true":null} aria-label="matrix"
title="matrix: a column for each cluster"><${S} name="table" /></a>
</span>`;return a`
<${Qe} incomplete=${o.clusters.incomplete} missingKas=${o.missingKas} isCut=${o.cut} />
${r&&a`<div class="notice notice--warning">The rows are old: ${r.message}</div>`}
${d?a`<${Er} rows=${p} columns=${Hr} tools=${f} empty=${m} />`:a`<${Re} noun="applications" example="health!=current" columns=${n?Hr:hn} rows=${p}
order="-health" hasCluster=${n} nameOf=${u} tools=${f} empty=${m} narrow=${il(n)}
panel=${c=>a`<${Rr} row=${c} />`} />`}`}var il=e=>(t,n,s)=>a`
<span class="narrow__main">
<a class="row-link" href=${s} tabindex="-1">${te({text:t.name})}</a>
${t.health&&ie({state:t.health})}
</span>
<span class="narrow__more"><span class="muted">${[e&&t.cluster,t.namespace,t.version].filter(Boolean).join(" · ")}</span><span class="muted">${vs(t).join("/")}</span></span>`;function Wr(){return a`
<${ee} title="Applications"><p class="muted">Workloads that belong together, and the version of each.</p><//>
<${$n} clusters=${We()} />`}var al=["cluster","group","kind","namespace","name","state","health","reason","version","object","message","os","architecture","type","owner","node","schedule"],ll=["ready","wanted","restarts","count"],cl=["images","addresses","ports","pressures"],ul=["labels","capacity","selector"];function qr(e){let t={...e};for(let n of al)t[n]!==void 0&&typeof t[n]!="string"&&(t[n]=gs(t[n]));for(let n of ll)t[n]!==void 0&&typeof t[n]!="number"&&delete t[n];for(let n of cl)t[n]!==void 0&&(t[n]=Array.isArray(t[n])?t[n].map(gs):[]);for(let n of ul){if(t[n]===void 0)continue;let s=typeof t[n]=="object"&&t[n]!==null&&!Array.isArray(t[n]);t[n]=Object.fromEntries(s?Object.entries(t[n]).map(([o,r])=>[o,gs(r)]):[])}return t}function gs(e){return typeof e=="string"?e:typeof e=="number"||typeof e=="boolean"?`${e}`:""}var Kr=new WeakMap;function bs(e,t){let n=Kr.get(e);return n||(n={...qr(e),key:t??[e.cluster,e.group,e.kind,e.namespace,e.name].join("/"),createdAt:an(e.created),sinceAt:an(e.since),lastAt:an(e.last)},Kr.set(e,n)),n}function Me(e){let t=[],n=[];for(let[s,o]of e)s.startsWith("cluster/")?n.push(o):typeof o=="object"&&o!==null&&t.push(bs(o,s));return{objects:t,incomplete:n,isCut:e.get("more")===!0}}var Vr=new WeakMap;function Fe(e){let t=new Map;for(let n of e){let s=[n.cluster,n.namespace,n.object,n.reason].join("/"),o=t.get(s);o?o.push(n):t.set(s,[n])}return[...t].map(([n,s])=>{s.sort((d,u)=>u.lastAt-d.lastAt);let o=s[0],r=Vr.get(o);if(r&&r.members.length===s.length&&s.every((d,u)=>r.members[u]===d))return r;let[i="",l=""]=String(o.object??"").split("/"),p={...o,key:n,members:s,objectKind:i,objectName:l,count:s.reduce((d,u)=>d+(u.count??1),0),firstAt:s[s.length-1].lastAt};return Vr.set(o,p),p})}var pl=[["bad","failed"],["progress","in progress"],["ok","current"]];function _n({shares:e,name:t,isOld:n=!1,tab:s,linkTo:o}){if(!e)return a`<span class="muted">–</span>`;if(!e.total)return a`<span class="bar bar--empty" title="no workloads"></span>`;let r=pl.filter(([i])=>e[i]);return a`
<span class=${`bar ${n?"bar--old":""}`}>
${r.map(([i])=>a`<span class=${`bar__share bar__share--${i}`} key=${i}
style=${{flexGrow:e[i]}}></span>`)}
<span class="bar__links">${r.map(([i,l])=>a`
<a class="bar__link" key=${i} href=${o(l)} tabindex=${s} style=${{flexGrow:e[i]}}
aria-label=${`${t}: ${e[i]} of ${e.total} ${l}`}
title=${`${e[i]} of ${e.total} ${l}`}></a>`)}</span>
</span>`}function at({labels:e,most:t=99,tab:n,inFleet:s=!1}){let o=Object.entries(e);if(!o.length)return null;let r=o.slice(0,t),i=o.length-r.length;return a`
<span class="labels">
${r.map(([l,p])=>a`
<a class="chip" key=${l} tabindex=${n}
href=${dl(`${l}=${es(p)}`,s)} title=${`${l}=${p}`}>
<span class="chip__key">${fl(l)}</span>${p||'""'}
</a>`)}
${i>0&&a`<span class="chip chip--more" title=${o.slice(t).map(([l,p])=>`${l}=${p}`).join(`
`)}>+${i}</span>`}
</span>`}function dl(e,t){if(t)return ve(`${M}/fleet`,{q:e});let n=L.value.params.get("q")??"",s=n.split(" ").filter(Boolean);return U({q:s.includes(e)?n:[...s,e].join(" "),open:null})}function fl(e){return e.slice(e.lastIndexOf("/")+1)}var ml=[["nodes","nodes"],["deployments","workloads"],["statefulsets","workloads"],["daemonsets","workloads"],["jobs","workloads"],["cronjobs","workloads"],["pods","problems"],["services","services"],["namespaces","problems"]],hl={nodes:"Node",deployments:"Deployment",statefulsets:"StatefulSet",daemonsets:"DaemonSet",jobs:"Job",cronjobs:"CronJob",pods:"Pod",services:"Service",namespaces:"Namespace"},Gr=8;function zr({name:e,cluster:t}){return a`
<div class="cards">
<div class="cards__column">
<${$l} name=${e} cluster=${t} /><${vl} name=${e} cluster=${t} />
</div>
<div class="cards__column">
<${_l} name=${e} cluster=${t} /><${gl} name=${e} cluster=${t} />
</div>
</div>`}function vn({title:e,href:t,more:n,children:s}){return a`
<section class="card" aria-label=${e}>
<header class="card__head"><h2>${e}</h2>${t&&n&&a`<a href=${t}>${n}</a>`}</header>
${s}
</section>`}function ys(e,t){let n=Se({channel:"ClusterChannel",cluster:e,view:t}),s=n.version.value;return{objects:C(()=>Me(n.rows).objects,[n,s]),isLoading:n.state.value==="loading"}}function $l({name:e,cluster:t}){let{objects:n,isLoading:s}=ys(e,"problems"),o=un(n,{column:it,direction:-1}).slice(0,Gr);return a`
<${vn} title="Problems" href=${T(e,"problems")} more=${n.length?`all ${n.length}`:""}>
${s&&!n.length&&a`<${se} rows=${3} />`}
${!s&&!n.length&&a`<div class="card__body muted">${Xt(t?.summary)?"Each object has reached the state of its specification.":t?.problems===null||!t?"You see no objects of this cluster.":"Each object that you see has reached the state of its specification."}</div>`}
<ul class="lines">${o.map(r=>a`
<li key=${r.key}><a class="line" href=${T(e,"problems",{open:Ke(r)})}>
<span class="line__what"><${te} text=${r.name} /></span>
<span class=${Ue(r)==="bad"?"number--bad":"muted"}>${r.state}</span>
<span class="line__why">${r.kind}${r.namespace&&` in ${r.namespace}`}, <${H} at=${r.sinceAt} />${r.reason?` · ${r.reason}`:""}</span></a></li>`)}
</ul>
<//>`}function _l({name:e,cluster:t}){let n=t?.summary,s=ml.filter(([o])=>n?.[o]);return a`
<${vn} title="Objects">
<div class="card__body">
${s.length?a`
<dl class="kinds">${s.map(([o,r])=>{let i=Le(n,[o])??{ok:0,progress:0,bad:0,total:0},{total:l}=i,{states:p}=n[o],d=`kind=${hl[o]}`,u=r===o,m=Object.entries(p??{}).map(([f,c])=>`${Yt(c)} ${f}`).join(", ");return a`
<div key=${o} title=${m}><dt><a href=${T(e,r,u?{}:{q:d})}>${o}</a></dt>
<dd>${l}</dd>
<dd>${l>0&&a`<${_n} shares=${i} name=${o} isOld=${t?.state!=="live"}
linkTo=${f=>T(e,r,{q:[!u&&d,`health=${f.includes(" ")?`"${f}"`:f}`].filter(Boolean).join(" ")})} />`}</dd></div>`})}</dl>`:a`<p class="muted">The numbers of objects are visible to users who may list them in all namespaces.</p>
<${Te} text="kubectl auth can-i list pods --all-namespaces" />`}
</div>
<//>`}function vl({name:e,cluster:t}){let{objects:n,isLoading:s}=ys(e,"events"),o=Fe(n).sort((r,i)=>i.lastAt-r.lastAt).slice(0,Gr);return a`
<${vn} title="Warnings" href=${T(e,"events")} more=${o.length?"all":""}>
${s&&!n.length&&a`<${se} rows=${3} />`}
${!s&&!n.length&&a`<div class="card__body muted">${t?.summary?.events?"None within the last hour.":"You may not list the events of all namespaces, or there are none."}</div>`}
<ul class="lines">${o.map(r=>a`
<li key=${r.key}><a class="line" href=${T(e,"events",{open:Ke(r)})}>
<span class="line__what"><${te} text=${r.object??""} /></span>
<span class="muted">${r.count>1&&`×${r.count} · `}<${H} at=${r.lastAt} /></span>
<span class="line__why">${r.reason}: ${r.message}</span></a></li>`)}
</ul>
<//>`}function gl({name:e,cluster:t}){let{objects:n}=ys(e,"kinds"),s=n.filter(o=>o.state!=="synced"&&!/has no kind/.test(o.reason??""));return a`
<${vn} title="About">
<div class="card__body">
<dl class="facts">
<div><dt>Data</dt><dd>${t?.state==="live"?"now":t?.lastSeen?a`<${H} at=${t.lastSeen} suffix=" ago" />`:"–"}</dd></div>
${t?.kubernetesVersion&&a`<div><dt>Kubernetes</dt><dd>${t.kubernetesVersion}</dd></div>`}
${t?.agentkVersion&&a`<div><dt>agentk</dt><dd>${t.agentkVersion}</dd></div>`}
${t&&Object.keys(t.labels).length>0&&a`
<div><dt>Labels</dt><dd><${at} labels=${t.labels} inFleet=${!0} /></dd></div>`}
${s.map(o=>a`
<div key=${o.key}><dt>${o.kind}</dt><dd>${o.state==="count_only"?"only counted":o.state}${o.reason?`: ${o.reason}`:""}</dd></div>`)}
</dl>
<${Te} text=${Ce`kasctl problems --clusters ${e}`} />
</div>
<//>`}var ks=new Set(["Deployment","StatefulSet","DaemonSet","Job","CronJob"]);function lt({row:e,tab:t}){let n=e.kind==="Event",s=n?e.objectKind:e.kind,o=n?e.objectName:e.name;return a`
<${st} title=${o} kind=${s} link=${t?"":T(e.cluster)}>
<section class="panel__section">
${n?a`<strong>${e.reason}</strong>`:a`<div><${ie} state=${e.state||e.health} health=${e.health} /></div>`}
${(n?e.message:e.reason)&&a`
<p class=${e.health==="failed"?"message message--bad":"message"}>${n?e.message:e.reason}</p>`}
<${bl} row=${e} isEvent=${n} />
</section>
${e.labels&&Object.keys(e.labels).length>0&&a`
<section class="panel__section"><h3>Labels</h3><${at} labels=${e.labels} /></section>`}
${ks.has(s)&&a`<${yl} row=${e} kind=${s} name=${o} />`}
<${kl} cluster=${e.cluster} namespace=${e.namespace} kind=${s} name=${o} />
<${wl} kind=${s} namespace=${e.namespace} name=${o} />
<//>`}function bl({row:e,isEvent:t}){let n=[["Cluster",a`<a href=${T(e.cluster)}>${e.cluster}</a>`],["Namespace",e.namespace],["Since",e.sinceAt>0&&a`<${H} at=${e.sinceAt} suffix=" ago" /><span class="muted"><${ln}
at=${e.sinceAt} /></span>`],["Last",e.lastAt>0&&a`<${H} at=${e.lastAt} suffix=" ago" /><span class="muted"><${ln}
at=${e.lastAt} /></span>`],["Count",t&&e.count],["Ready",mn(e)],["Schedule",e.schedule&&a`<code>${e.schedule}</code>${e.suspended&&a`<span>suspended</span>`}`],["Restarts",e.restarts>0&&e.restarts],["Owner",e.owner],["Node",e.node],["Type",e.type],["Ports",e.ports?.join(", ")],["Version",e.version],["System",[e.os,e.architecture].filter(Boolean).join(", ")],["Capacity",e.capacity&&Object.entries(e.capacity).map(([s,o])=>`${s} ${o}`).join(", ")],["Pressure",e.pressures?.join(", ")],["Created",e.createdAt>0&&a`<${H} at=${e.createdAt} suffix=" ago" /><span class="muted"><${ln}
at=${e.createdAt} /></span>`]];return a`
<dl class="facts">
${n.filter(([,s])=>s).map(([s,o])=>a`
<div key=${s}><dt>${s}</dt><dd>${o}</dd></div>`)}
${[...e.images??[]].map(s=>a`
<div key=${s}><dt>Image</dt><dd><code>${s}</code><${ge} text=${s} label="image" /></dd></div>`)}
${[...e.addresses??[]].map(s=>a`
<div key=${s}><dt>Address</dt><dd><code>${s}</code><${ge} text=${s} label="address" /></dd></div>`)}
${e.selector&&a`<div><dt>Selector</dt><dd><code>${Object.entries(e.selector).map(([s,o])=>`${s}=${o}`).join(",")}</code></dd></div>`}
</dl>`}function yl({row:e,kind:t,name:n}){let s=Se({channel:"ClusterChannel",cluster:e.cluster,view:"problems"});s.version.value;let o=t==="Deployment"?`ReplicaSet/${n}-`:t==="CronJob"?`Job/${n}-`:`${t}/${n}`,{objects:r}=Me(s.rows),i=r.filter(l=>l.kind==="Pod"&&l.namespace===e.namespace&&(o.endsWith("-")?l.owner?.startsWith(o):l.owner===o));return i.length?a`
<section class="panel__section"><h3>Pods with problems (${i.length})</h3>
${i.slice(0,10).map(l=>a`
<div class="event" key=${l.key}>
<span class="event__line"><a href=${T(l.cluster,"problems",{open:Ke(l)})}>${l.name}</a>
<span class="muted"><${H} at=${l.sinceAt} /></span></span>
<p>${[l.state,l.reason,l.restarts&&`${l.restarts} restarts`].filter(Boolean).join(" · ")}</p>
</div>`)}
</section>`:null}function kl({cluster:e,namespace:t,kind:n,name:s}){let o=Se({channel:"EventsChannel",clusters:[e],namespace:t});o.version.value;let{objects:r}=Me(o.rows),i=`${n}/${s}`,l=Fe(r.filter(p=>{let d=String(p.object??"");return d===i||ks.has(n)&&d.slice(d.indexOf("/")+1).startsWith(`${s}-`)&&/^(?:Pod|ReplicaSet|Job)\//.test(d)})).sort((p,d)=>d.lastAt-p.lastAt);return a`
<section class="panel__section"><h3>Warnings</h3>
${o.state.value==="refused"&&a`<p class="muted">not available: ${o.reason.value}</p>`}
${o.state.value==="live"&&!l.length&&a`<p class="muted">none in the last hour</p>`}
${l.slice(0,20).map(p=>a`
<div class="event" key=${p.key}>
<span class="event__line"><span><strong>${p.reason}</strong>${p.count>1&&a` <span class="muted">×${p.count}</span>`}</span><span class="muted"><${H} at=${p.lastAt} /></span></span>
<p>${p.object!==i&&a`${p.object}: `}${p.message}</p>
</div>`)}
</section>`}function wl({kind:e,namespace:t,name:n}){let s=e.toLowerCase(),o=[t?Ce`kubectl -n ${t} describe ${s} ${n}`:Ce`kubectl describe ${s} ${n}`];e==="Pod"?o.push(Ce`kubectl -n ${t} logs ${n} --all-containers --previous`):ks.has(e)&&e!=="CronJob"&&o.push(Ce`kubectl -n ${t} logs ${s}/${n} --since=10m`);let r=o.filter(Boolean);return r.length?a`
<section class="panel__section"><h3>kubectl</h3>
${r.map(i=>a`<${Te} key=${i} text=${i} />`)}
</section>`:null}var ws=[["","Overview",[]],["workloads","Workloads",vt],["nodes","Nodes",["nodes"]],["services","Services",["services"]],["problems","Problems",[]],["events","Events",["events"]],["applications","Applications",[]]],xl={workloads:["No workloads","Deployments, StatefulSets, DaemonSets, Jobs and CronJobs appear here."],nodes:["No nodes","Nodes appear here as soon as they join the cluster."],services:["No Services","Services appear here with their ports and addresses."],problems:["No problems","Each object that you see has reached the state of its specification."],events:["No warnings","The cluster has written no warning within the last hour."]},Sl={workloads:"kind=Deployment name~api",nodes:"state!=Ready",services:"type=LoadBalancer",problems:"kind!=Pod",events:"reason=BackOff"};function Jr({name:e,tab:t}){let n=No.value.get(e),s=!!n||!me.value.isComplete;N(()=>{s&&$o(e)},[e,s]);let o=Pe.value.includes(e),r=!n&&(he().state.value==="loading"||!me.value.isLoaded);return a`
<${ee} title=${e} above=${a`<a class="heading__above" href=${`${M}/fleet`}>Fleet</a>`} actions=${a`
${n&&a`<${Tt} state=${n.state} />`}
<${ge} text=${e} label="name of the cluster" />
<button type="button" class="icon-button" aria-pressed=${o} aria-label="pin" title=${o?"unpin":"pin"}
onClick=${()=>_o(e)}><${S} name="pin" /></button>`} />
<nav class="tabs" aria-label="views of the cluster">
${ws.map(([i,l,p])=>a`
<a key=${i} href=${T(e,i)} aria-current=${i===t?"page":null}>${l}
<${Ml} cluster=${n} id=${i} kinds=${p} /></a>`)}
</nav>
${n&&a`<${El} cluster=${n} />`}
${r?a`<${se} />`:a`<${Al} key=${t} name=${e} tab=${t} cluster=${n} />`}`}function Al({name:e,tab:t,cluster:n}){return!n&&me.value.isComplete?a`
<${K} icon="search" title="You see no cluster of this name">
<p>It does not exist, or you have no access to it. <a href=${`${M}/fleet`}>All clusters</a></p>
<//>`:n?.state==="never"?a`
<${K} icon="circleDashed" title="This cluster has never sent data">
<p>Is the module <code>cluster_data</code> enabled in its agentk, and does no other agentk hold the Lease of this agent?
This command installs an agentk with it:</p>
<${Te} text=${Ce`kasctl agent install ${e} --context CONTEXT --module cluster_data`} />
<//>`:n?.state==="denied"?a`
<${K} icon="ban" title="You have no access to this cluster">
<p>Ask an administrator of kas for access to the agent ${e}. To look at your own access:</p>
<p class="command"><code>kasctl user list</code></p>
<//>`:t?t==="applications"?a`<${$n} clusters=${[e]} />`:Object.hasOwn(qe,t)?a`<${Cl} name=${e} tab=${t} cluster=${n} />`:a`<${K} icon="search" title="This view does not exist" />`:a`<${zr} name=${e} cluster=${n} />`}function Cl({name:e,tab:t,cluster:n}){let s=Se({channel:"ClusterChannel",cluster:e,view:t}),o=s.version.value,{rows:r,isCut:i}=C(()=>{let c=Me(s.rows);return{rows:t==="events"?Fe(c.objects):c.objects,isCut:c.isCut}},[s,o,t]),l=s.state.value;if(l==="loading"&&!r.length)return a`<${se} />`;if(l==="refused"&&!r.length)return a`<${oe} what=${t} status=${s.status.value} message=${s.reason.value} since=${s.since.value}
retryAt=${s.retryAt.value} retry=${()=>s.retry()} />`;let p=(ws.find(([c])=>c===t)??ws[0])[2],d=n?.state==="live"?p.filter(c=>!n.summary?.[c]):[],[u,m]=xl[t],f=t==="events"?"last":t==="services"?"name":"-trouble";return a`
${i&&a`<div class="notice notice--warning">The list has the first 5000 rows only.</div>`}
<${Re} noun=${t} columns=${qe[t]} rows=${r} order=${f} hidden=${Tl}
example=${Sl[t]} panel=${c=>a`<${lt} row=${c} tab=${t} />`}
empty=${d.length===p.length&&p.length?a`<${Ar} cluster=${e} resources=${d} />`:a`<${K} title=${u}><p>${m}</p><//>`} />`}var Tl=[it];function Ml({cluster:e,id:t,kinds:n}){let s=t==="problems"?e?.problems:n.length&&t!=="events"?Le(e?.summary,n)?.total:null;return s?a`<span class="tabs__count">${s}</span>`:null}function El({cluster:e}){if(e.state!=="late"&&e.state!=="offline")return null;xe.value,pe.value;let t=e.lastSeen?ne(x()-e.lastSeen):"";return a`
<div class="notice notice--warning"><${S} name=${e.state==="late"?"clock":"cloudOff"} />
<span>${e.state==="late"?"agentk is connected, and sends no data at the moment.":"agentk is not connected."}
${t&&` All rows are the state of ${t} ago.`}</span></div>`}var[Ol,jl,Nl,...Ll]=qe.events,Pl=[Ol,jl,Nl,rt,...Ll];function Zr(){let e=Se({channel:"EventsChannel",clusters:We()}),t=e.version.value,{rows:n,incomplete:s,isCut:o}=C(()=>{let i=Me(e.rows);return{...i,rows:Fe(i.objects)}},[e,t]),r=e.state.value;return a`
<${ee} title="Events"><p class="muted">Warnings of all clusters, one row for each object and reason.</p><//>
${r==="loading"&&!n.length&&a`<${se} label="loading events" />`}
${r==="refused"&&!n.length&&a`<${oe} what="events" status=${e.status.value}
message=${e.reason.value} since=${e.since.value} retryAt=${e.retryAt.value} retry=${()=>e.retry()} />`}
${(r==="live"||n.length>0)&&a`
<${Qe} incomplete=${s} isCut=${o} />
<${Re} noun="events" example="reason=BackOff" columns=${Pl} rows=${n} order="last" hasCluster=${!0}
panel=${i=>a`<${lt} row=${i} tab="" />`}
empty=${a`<${K} title="No warnings"><p>No cluster has written a warning within the last hour.</p><//>`} />`}`}var Xr={offline:4,late:3,never:2,denied:1,live:0};function Rl(e){let t=(e.workloads?.bad??0)+3*(e.nodes?.bad??0);return(Xr[e.state]??0)*1e9+t*1e4+Math.min(9999,e.problems??0)}var Fl=e=>t=>T(e.name,"workloads",{q:`health=${t.includes(" ")?`"${t}"`:t}`});function Ot(e){return e?e.bad?`${e.total-e.bad}/${e.total}`:`${e.total}`:""}function xs(e,t){return e.state!=="live"?"number muted":t?"number number--bad":"number"}function Dl(e,t){return e.problems===null?a`<span class="muted">–</span>`:e.problems?a`<a class=${xs(e,!!(e.workloads?.bad||e.nodes?.bad))} tabindex=${t}
href=${T(e.name,"problems")}>${e.problems}</a>`:a`<span class="muted">0</span>`}var Qr={id:"worst",title:"",width:"0",text:()=>"",value:Rl},ct=[{id:"state",title:"State",width:"6.5rem",text:e=>e.state,value:e=>Xr[e.state],cell:e=>Tt({state:e.state}),largestFirst:!0},{id:"name",title:"Name",width:"minmax(9rem, 1.6fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>te({text:e.name})},{id:"health",title:"Health",width:"9rem",least:760,noFilter:!0,text:e=>e.workloads?`${e.workloads.ok}/${e.workloads.total}`:"",value:e=>e.workloads?.total?e.workloads.bad/e.workloads.total:null,largestFirst:!0,cell:(e,t)=>_n({shares:e.workloads,name:`workloads of ${e.name}`,isOld:e.state!=="live",tab:t,linkTo:Fl(e)})},{id:"nodes",title:"Nodes",width:"5rem",align:"end",noFilter:!0,text:e=>Ot(e.nodes),value:e=>e.nodes?.total,largestFirst:!0,cell:(e,t)=>Yr(e,e.nodes,T(e.name,"nodes"),t)},{id:"workloads",title:"Workloads",width:"6.5rem",align:"end",noFilter:!0,text:e=>Ot(e.workloads),value:e=>e.workloads?.total,largestFirst:!0,cell:(e,t)=>Yr(e,e.workloads,T(e.name,"workloads"),t)},{id:"problems",title:"Problems",width:"5.75rem",align:"end",noFilter:!0,text:e=>e.problems===null?"":`${e.problems}`,value:e=>e.problems,largestFirst:!0,cell:Dl},{id:"kubernetes",title:"Kubernetes",width:"6.5rem",least:900,text:e=>e.kubernetesVersion,value:e=>e.kubernetesVersion},{id:"agentk",title:"agentk",width:"6rem",least:1240,text:e=>e.agentkVersion,value:e=>e.agentkVersion},{id:"labels",title:"Labels",width:"minmax(8rem, 1.4fr)",least:1e3,noFilter:!0,text:e=>Object.entries(e.labels).map(([t,n])=>`${t}=${n}`).join(" "),value:e=>Object.keys(e.labels).length,cell:(e,t)=>at({labels:e.labels,most:3,tab:t})},{id:"age",title:"Data",width:"5.5rem",align:"end",noFilter:!0,largestFirst:!0,text:e=>e.state==="live"?"now":e.lastSeen?`${e.lastSeen}`:"",value:e=>e.state==="live"?0:e.lastSeen?x()-e.lastSeen:null,cell:Il},{id:"nodes-bad",title:"Broken nodes",width:"0",isHidden:!0,noFilter:!0,text:e=>`${e.nodes?.bad??0}`,value:e=>e.nodes?.bad??0},{id:"workloads-bad",title:"Failed workloads",width:"0",isHidden:!0,noFilter:!0,text:e=>`${e.workloads?.bad??0}`,value:e=>e.workloads?.bad??0}];function Yr(e,t,n,s){return t?a`<a class=${xs(e,t.bad>0)} href=${n} tabindex=${s}>${Ot(t)}</a>`:a`<span class="muted" title="you may not list these in all namespaces">–</span>`}function Il(e){return e.state==="live"?a`<span class="muted">now</span>`:e.lastSeen?a`<${H} at=${e.lastSeen} />`:a`<span class="muted">–</span>`}function ei(e,t,n){let s=e.lastSeen?ne(x()-e.lastSeen):"",o=[e.nodes&&`${Ot(e.nodes)} nodes`,e.workloads&&`${Ot(e.workloads)} workloads`,e.state!=="live"&&s&&`data ${s} old`].filter(Boolean);return a`
<span class="narrow__main">
<a class="row-link" href=${n} tabindex="-1">${te({text:e.name})}</a>
${Tt({state:e.state})}
</span>
<span class="narrow__more">
<span class="muted">${o.join(" · ")||"no data"}</span>
${e.problems!==null&&e.problems>0&&a`<a class=${xs(e,!0)} tabindex=${t}
href=${T(e.name,"problems")}>${e.problems} ${e.problems===1?"problem":"problems"}</a>`}
</span>`}var Bl=[Qr],gn=e=>ve(`${M}/fleet`,{q:e});function ti(){let e=he(),t=Ae.value,{error:n,isLoaded:s,isComplete:o,list:r,reason:i,since:l}=me.value,{found:p,items:d,sort:u,terms:m,query:f,group:c}=nt(t,ct,"-worst",Bl),h=s&&o&&!r.length,y=!h&&!t.length&&(e.state.value==="loading"||!s&&!n),_=e.state.value==="refused";return a`
<${ee} title="Fleet"><${Ul} /><//>
${t.length>0&&_&&a`<${Wl} feed=${e} />`}
${!o&&a`<${ql} reason=${i} />`}
${y&&a`<${se} label="loading clusters" />`}
${!h&&!y&&!t.length&&(n||_)&&a`
<${oe} what="Clusters" status=${n?.status??e.status.value} message=${n?.message??e.reason.value}
since=${n?l:e.since.value} retryAt=${e.retryAt.value} retry=${()=>{At(),_&&e.retry()}} />`}
${h&&!t.length&&a`
<${K} icon="server" title="No clusters yet">
<p>Ask an administrator of kas for access to a cluster.  Administrators add an agent, and install agentk in its
cluster, with one command:</p>
<p class="command"><code>kasctl agent install NAME --context CONTEXT</code></p>
<//>`}
${t.length>0&&a`
<section class="list" aria-label="clusters">
<${tt} columns=${ct} rows=${t} hits=${p.length} total=${t.length} noun="clusters"
example="env=prod state!=live">
<${Hl} rows=${t} group=${c} />
<${et} name="clusters" columns=${ct} rows=${p} />
<//>
<${pn} label="clusters" columns=${ct} items=${d} sort=${u} query=${f}
link=${v=>T(v.name)} openKey=""
rowTitle=${v=>({title:v.name,detail:v.state})} narrow=${ei} />
${!p.length&&a`<${Xe} terms=${m} columns=${ct} rows=${t} noun="clusters" />`}
</section>`}`}var ni=e=>e.toLocaleString("en");function Ss(e,t){return t?ni(e):"–"}function As(e,t){let n=Ct.value.clusters;return t?t===n?e:`${e} in ${t} of ${n} clusters`:"not visible to you"}function Ul(){let e=Ct.value;if(!e.clusters)return a`<p class="totals"> </p>`;let t=["late","offline","never","denied"].filter(n=>e[n]);return a`
<dl class="totals">
<div><dt>clusters</dt><dd><a href=${`${M}/fleet`}>${ni(e.clusters)}</a></dd>
<dd class="totals__more"><a href=${gn("state=live")}>${e.live} live</a>
${t.map(n=>a`
<a key=${n} class="totals__warn" href=${gn(`state=${n}`)}>${e[n]} ${n}</a>`)}</dd></div>
<div><dt>nodes</dt><dd><a href=${ve(`${M}/fleet`,{sort:"-nodes"})}>${Ss(e.nodes,e.knowNodes)}</a></dd>
<dd class="totals__more">${e.brokenNodes?a`<a class="totals__bad" href=${gn("nodes-bad>0")}>${e.brokenNodes} not ready</a>`:As("all ready",e.knowNodes)}</dd></div>
<div><dt>workloads</dt><dd><a href=${ve(`${M}/fleet`,{sort:"-workloads"})}>${Ss(e.workloads,e.knowWorkloads)}</a></dd>
<dd class="totals__more">${e.brokenWorkloads?a`<a class="totals__bad" href=${gn("workloads-bad>0")}>${e.brokenWorkloads} failed</a>`:As("none failed",e.knowWorkloads)}</dd></div>
<div><dt>problems</dt><dd><a href=${`${M}/problems`}>${Ss(e.problems,e.knowProblems||e.problems)}</a></dd>
<dd class="totals__more">${e.problems?`in ${e.troubled} ${e.troubled===1?"cluster":"clusters"}`:As("everything is as specified",e.knowProblems)}${e.oldProblems?`, ${e.oldProblems} of old data`:""}</dd></div>
</dl>`}function Hl({rows:e,group:t}){let n=Mr(e);return!n.length&&!t?null:a`
<label class="select"><span>Group by</span>
<select value=${t} onChange=${o=>R(U({group:o.target.value||null}))}>
<option value="">no group</option>
${[...new Set([...n,...t?[t]:[]])].map(o=>a`<option key=${o} value=${o}>${o}</option>`)}
</select></label>`}function Wl({feed:e}){return a`<div class="notice notice--warning"><span>kas sends no changes: ${e.reason}</span>
<button type="button" class="button" onClick=${()=>e.retry()}>Retry now</button></div>`}function ql({reason:e}){function t(n){n.preventDefault();let s=new FormData(n.target).get("name");typeof s=="string"&&s.trim()&&R(T(s.trim()))}return a`
<form class="notice open-cluster" onSubmit=${t}>
<p>${e||"kas cannot list all your clusters."} The list has the clusters that you opened here.</p>
<label>Open a cluster <input name="name" type="text" autocomplete="off" required placeholder="name of its agent" /></label>
<button type="submit" class="button button--primary">Open</button>
</form>`}function si({part:e}){let t=q(null),[n,s]=j(""),[o,r]=j(0),[i]=j(x());return N(()=>{let l,p=!1;return Kl(e.style),import(e.script).then(d=>{p||!t.current||(l=d.mount(t.current,{user:I.user,csrf:I.csrf,getJson:Q,go:R,clusterAddress:T}))}).catch(d=>s(String(d))),()=>{p=!0,typeof l=="function"&&l()}},[e,o]),a`
<${ee} title=${e.title} />
${n&&a`<${oe} what=${e.title} status=${500} message=${n} since=${i} retry=${()=>{s(""),r(o+1)}} />`}
<div ref=${t}></div>`}function Kl(e){if(!e||document.querySelector(`link[href="${CSS.escape(e)}"]`))return;let t=document.createElement("link");t.rel="stylesheet",t.href=e,document.head.append(t)}var ri=3e3,oi=3e4,Vl=50,Ve=w({rows:null,incomplete:[],missingKas:0,isCut:!1,error:null,since:x(),retryAt:0}),Ts=new Map,bn=0,Ms=0,Cs=!1;async function kn(){Ts=new Map(Ae.peek().map(e=>[e.name,e.source])),await ii(()=>Gn("/api/v1/problems",{clusters:We().join(",")}),()=>!0)}async function ii(e,t){if(!Cs){Cs=!0,clearTimeout(Ms);try{let n=await e(),s=Ve.peek();Ve.value={rows:[...(s.rows??[]).filter(o=>!t(o.cluster)),...n.items],incomplete:[...s.incomplete.filter(o=>!t(o.name)),...n.incomplete],missingKas:n.missingKas,isCut:n.isCut,error:null,since:x(),retryAt:0},yn(ri)}catch(n){Ve.value={...Ve.peek(),error:n,since:x(),retryAt:x()+oi/1e3},yn(oi)}finally{Cs=!1}}}function yn(e){clearTimeout(Ms),bn&&(Ms=setTimeout(Gl,e))}function Gl(){if(!bn)return;if(Ve.peek().rows===null){kn();return}let e=document.hidden?[]:Ae.peek().filter(n=>Ts.get(n.name)!==n.source).slice(0,Vl);if(!e.length){yn(ri);return}for(let n of e)Ts.set(n.name,n.source);let t=new Set(e.map(n=>n.name));ii(()=>Gn("/api/v1/problems",{clusters:[...t].join(",")}),n=>t.has(n))}function ai(){return N(()=>(he(),bn+=1,Ve.peek().rows===null?kn():yn(0),()=>{bn-=1}),[]),Ve.value}var[zl,Jl,...Zl]=qe.problems,Yl=[zl,Jl,rt,...Zl],Xl=[it];function li(){let{rows:e,incomplete:t,missingKas:n,isCut:s,error:o,since:r,retryAt:i}=ai(),l=C(()=>(e??[]).map(p=>bs(p)),[e]);return a`
<${ee} title="Problems"><p class="muted">Objects that have not reached the state of their specification.</p><//>
${!e&&o&&a`<${oe} what="problems" status=${o.status} message=${o.message} since=${r}
retryAt=${i} retry=${kn} />`}
${!e&&!o&&a`<${se} label="loading problems" />`}
${e&&a`
${o&&a`<div class="notice notice--warning">The rows are old: ${o.message}</div>`}
<${Qe} incomplete=${t} missingKas=${n} isCut=${s} />
<${Re} noun="problems" example="kind!=Pod cluster~eu" columns=${Yl} rows=${l}
order="-trouble" hidden=${Xl} hasCluster=${!0}
panel=${p=>a`<${lt} row=${p} tab="" />`}
empty=${a`<${K} title="No problems"><p>Each object that you may see has reached the state of its
specification.</p><p><a href=${`${M}/fleet`}>All clusters</a></p><//>`} />`}`}var jt=class extends ue{state={error:null,since:0};componentDidCatch(t){this.setState({error:t,since:x()})}render({children:t},{error:n,since:s}){return n===null?t:a`<${oe} what="This page" status=${-1} message=${String(n)} since=${s}
retry=${()=>this.setState({error:null})} />`}};function wn({label:e,class:t="",onClose:n,children:s}){let o=q(null);N(()=>{let i=document.activeElement;return o.current?.showModal(),()=>{i instanceof HTMLElement&&i.isConnected&&i.focus({preventScroll:!0})}},[]);function r(i){i.target===o.current&&n()}return a`
<dialog ref=${o} class=${`dialog ${t}`} aria-label=${e} onClose=${n} onClick=${r}>
<div class="dialog__inner" tabindex="-1">${s}</div>
</dialog>`}var Ql=[["Anywhere",[["Ctrl K","commands, clusters and objects"],["?","this list"],...Et.map(([e,t])=>[`g ${e}`,t.toLowerCase()])]],["In a list",[["/","filter"],["j k","next and previous row"],["↓ ↑","the same, in the table"],["Enter","open the row"],["Home End","first and last row"]]],["In the filter",[["Space","finish a term"],["↓ Enter","take a completion"],["Backspace","edit the last term"],["Esc","leave"]]],["In the side panel",[["j k","next and previous object"],["Esc","close"]]]];function ci(){return a`
<${wn} label="Keys" class="help" onClose=${()=>{G.value=""}}>
<h2>Keys</h2>
<div class="help__groups" tabindex="0" role="group" aria-label="keys">
${Ql.map(([e,t])=>a`
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
<//>`}var ui=50;function ec(){let e=t=>()=>R(t);return[...Et.map(([t,n,s])=>({kind:"Page",title:n,detail:`g ${t}`,run:e(s)})),...I.parts.map(t=>({kind:"Page",title:t.title,run:e(t.path)})),...["light","dark","system"].filter(t=>t!==He.value).map(t=>({kind:"Action",title:`Theme: ${t}`,run:()=>{He.value=t}})),ye.value==="compact"?{kind:"Action",title:"Density: comfortable",run:()=>{ye.value="comfortable"}}:{kind:"Action",title:"Density: compact",run:()=>{ye.value="compact"}},de.value?{kind:"Action",title:"Times: local zone",run:()=>{de.value=""}}:{kind:"Action",title:"Times: UTC",run:()=>{de.value="UTC"}},{kind:"Action",title:fe.value?"Turn off single-key shortcuts":"Turn on single-key shortcuts",run:()=>{fe.value=!fe.value}},{kind:"Action",title:"Show all keys",detail:"?",run:()=>{G.value="help"}},{kind:"Action",title:"Sign out",run:()=>{tn()}}]}function pi(){let[e,t]=j(""),[n,s]=j(0),o=q(null),r=C(()=>{let d=Ae.peek(),u=_e.peek(),m=c=>()=>R(T(c)),f=d.filter(c=>!u.includes(c.name));return[...u.map(c=>({kind:"Recent",title:c,detail:"cluster",run:m(c)})),...ec(),...f.map(({name:c,state:h})=>({kind:"Cluster",title:c,detail:h,run:m(c)})),...(ae.peek()?.objects()??[]).map(({title:c,detail:h,href:y})=>({kind:"Object",title:c,detail:h,run:()=>R(y)}))]},[]),i=C(()=>tc(r,e),[r,e]);function l(d){G.value="",d.run()}function p(d){if(d.key==="ArrowDown"||d.key==="ArrowUp"){d.preventDefault();let u=d.key==="ArrowDown"?1:-1,m=i.length?(n+u+i.length)%i.length:0;s(m),o.current?.children[m]?.scrollIntoView({block:"nearest"})}else d.key==="Enter"&&i[n]&&(d.preventDefault(),l(i[n]))}return a`
<${wn} label="Commands" class="palette" onClose=${()=>{G.peek()==="palette"&&(G.value="")}}>
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
<//>`}function tc(e,t){let n=t.toLowerCase().split(/\s+/).filter(Boolean);return n.length?e.map(s=>({one:s,rank:nc(s,n)})).filter(({rank:s})=>s>0).sort((s,o)=>o.rank-s.rank).slice(0,ui).map(({one:s})=>s):e.filter(s=>s.kind!=="Object").slice(0,ui)}function nc(e,t){let n=e.title.toLowerCase(),s=`${n} ${e.detail??""} ${e.kind}`.toLowerCase();return t.every(o=>s.includes(o))?n===t[0]?4:n.startsWith(t[0])?3:n.includes(t[0])?2:1:0}var Es=w(!1),di=!1;re(()=>{let e=xe.value.state==="open";e&&di||(e&&xe.peek().since>I.now+30&&sc(),di=e)});async function sc(){try{let{build:e}=await Q("/ui/api/session");Es.value=e!==I.build}catch{}}function Os({legend:e,name:t,options:n,chosen:s}){return a`
<fieldset class="choice">
<legend>${e}</legend>
<div class="choice__options">
${n.map(([o,r])=>a`
<label key=${o}><input type="radio" name=${t} checked=${s.value===o}
onChange=${()=>{s.value=o}} /><span>${r}</span></label>`)}
</div>
</fieldset>`}var js=w("");function fi(){return a`
<button type="button" class="nav__item user-button" popovertarget="user-menu" title="settings and user">
<${S} name="circleUser" /><span class="nav__text">${I.user.name||"user"}</span>
</button>
<div id="user-menu" class="user-menu" popover="auto" role="dialog" aria-label="settings and user">
<p class="user-menu__who"><strong>${I.user.name}</strong><span class="muted">signed in with ${I.user.method==="oidc"?"single sign-on":"a token"}</span></p>
<${Os} legend="Theme" name="theme" chosen=${He}
options=${[["system","System"],["light","Light"],["dark","Dark"]]} />
<${Os} legend="Density" name="density" chosen=${ye}
options=${[["comfortable","Comfortable"],["compact","Compact"]]} />
<${Os} legend="Times" name="zone" chosen=${de} options=${[["","Local"],["UTC","UTC"]]} />
<label class="switch"><input type="checkbox" checked=${fe.value}
onChange=${e=>{fe.value=e.target.checked}} /> Single-key shortcuts</label>
<div class="user-menu__buttons">
<button type="button" class="button" popovertarget="user-menu" popovertargetaction="hide"
onClick=${()=>{G.value="help"}}>Keys</button>
<button type="button" class="button" onClick=${async()=>{js.value=await tn()}}>Sign out</button>
</div>
${js.value&&a`<p class="notice notice--error" role="alert">Not signed out: ${js.value}</p>`}
</div>`}var oc=5,rc=120,ic=[["fleet","Fleet","server"],["problems","Problems","triangleAlert"],["events","Events","bell"],["applications","Applications","boxes"]];function ac(){let{path:e}=L.value,t=e===M?"fleet":e.slice(M.length+1),{problems:n}=Ct.value,s=[...new Set([...Pe.value,..._e.value])].slice(0,10);return a`
<nav class="nav" aria-label="pages">
<a class="nav__brand" href=${`${M}/fleet`}><${lc} /><span>kas</span></a>
<button type="button" class="nav__search" onClick=${()=>{G.value="palette"}}>
<${S} name="search" /><span class="nav__text">Go to…</span><kbd>Ctrl K</kbd>
</button>
<ul class="nav__list">
${ic.map(([o,r,i])=>a`
<li key=${o}><a class="nav__item" href=${`${M}/${o}`} aria-current=${t===o?"page":null}>
<${S} name=${i} /><span class="nav__text">${r}</span>
${o==="problems"&&n>0&&a`<span class="nav__count">${n>999?"999+":n}</span>`}
</a></li>`)}
${I.parts.map(o=>a`
<li key=${o.name}><a class="nav__item" href=${o.path} aria-current=${e===o.path?"page":null}>
<${S} name="layers" /><span class="nav__text">${o.title}</span></a></li>`)}
</ul>
${s.length>0&&a`
<div class="nav__known">
<h2>${Pe.value.length?"Pinned and recent":"Recent"}</h2>
<ul class="nav__list">${s.map(o=>a`
<li key=${o}><a class="nav__item nav__item--small" href=${T(o)} title=${o}
aria-current=${e.startsWith(T(o))?"true":null}>
<${S} name=${Pe.value.includes(o)?"pin":"clock"} size=${14} /><span class="nav__text">${o}</span>
</a></li>`)}
</ul>
</div>`}
<div class="nav__end"><${fi} /></div>
</nav>`}function lc(){return a`
<svg class="logo" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
<path d="M4 2v16M4 11.5 14.5 2M8.5 8 16 18" />
</svg>`}function cc(){return we.value?a`<div class="banner" role="alert"><span>You are signed out. The rows below do not change any more.</span>
<a class="button" href=${Ao()}>Sign in</a></div>`:null}function uc(){pe.value;let{state:e,since:t}=xe.value,n=x()-t,s=!we.value&&e!=="open"&&n>oc,o=x()-St.value,r=St.value?`data of ${ne(o)} ago`:"no data yet";return a`
<footer class="footer">
<span>kas ${I.version}</span>
<span class=${s?"footer__lost":""}>${s?`no connection to kas for ${ne(n)}, reconnecting; ${r}`:e==="open"?`live${St.value&&o>rc?`, last change ${ne(o)} ago`:""}`:"connecting"}</span>
<span>${de.value||Intl.DateTimeFormat().resolvedOptions().timeZone}</span>
${Es.value&&a`<button type="button" class="button button--quiet" onClick=${()=>location.reload()}>
kas was upgraded: reload</button>`}
</footer>`}function mi({children:e}){return a`
<a class="skip" href="#main">Skip to content</a>
<div class="shell">
<${ac} />
<div class="shell__page">
<${cc} />
<main id="main" class="main" tabindex="-1">${e}</main>
<${uc} />
</div>
</div>
<${xr} />`}function pc(){let{path:e}=L.value,t=I.parts.find(r=>r.path===e);if(t)return a`<${si} key=${e} part=${t} />`;let[n,s,o=""]=e.slice(M.length+1).split("/").map(dc);switch(n){case"":case"fleet":return a`<${ti} />`;case"problems":return a`<${li} />`;case"events":return a`<${Zr} />`;case"applications":return a`<${Wr} />`;case"clusters":if(s)return a`<${Jr} key=${s} name=${s} tab=${o} />`;default:return a`
<${ee} title="Not found" />
<${K} icon="search" title="This page does not exist"><p><a href=${`${M}/fleet`}>All clusters</a></p><//>`}}function dc(e){try{return decodeURIComponent(e)}catch{return e}}function fc(){return a`
<${jt}><${mi}><${jt} key=${L.value.path.split("/").slice(0,4).join("/")}><${pc} /><//><//><//>
${G.value==="palette"&&a`<${pi} />`}
${G.value==="help"&&a`<${ci} />`}`}At();var Ns=document.getElementById("app");Ns&&(Ns.replaceChildren(),Nn(a`<${fc} />`,Ns));
