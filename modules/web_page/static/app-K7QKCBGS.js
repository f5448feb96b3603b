function Qr(){let e=document.getElementById("boot")?.textContent,t={version:"",build:"",now:Date.now()/1e3,user:{name:"",method:""},csrf:"",parts:[]};return e?{...t,...JSON.parse(e)}:t}var B=Qr();var O,ks,bn,Ce,vn,Ot,ws,Tt,xs,yn,gn,ei,ct=Symbol.for("pv"),jt={},Nt=[],ti=/^m(i|n|o|s|text|space)$/,kn=Array.isArray,wn=Nt.slice,Pe=Object.assign;function Le(e){e&&e.parentNode&&e.remove()}function Lt(e,t,n){var s,o,r,i={},l=arguments.length;for(r in t)r=="key"?s=t[r]:r=="ref"&&typeof e!="function"?o=t[r]:i[r]=t[r];return l>2&&(i.children=l>3?wn.call(arguments,2):n),lt(e,i,s,o,null)}function lt(e,t,n,s,o){var r={type:e,props:t,key:n,ref:s,__k:null,__:null,__b:0,__e:null,__c:null,constructor:ct,__v:o||++ks,__i:-1,__u:0};return!o&&O.vnode&&O.vnode(r),r}function Te(e){return e.children}function _e(e,t){this.props=e,this.context=t,this.__g=0}function Me(e,t){if(t==null)return e.__&&Me(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!="function"||e.props.__P?null:Me(e)}function ni(e){var t,n=e.__v,s=n.__e,o=[],r=[],i=e.__P;i&&((t=Pe({constructor:ct},n)).__v=n.__v+1,O.vnode&&O.vnode(t),xn(i,t,n,e.__n,i.namespaceURI,32&n.__u?[s]:null,o,s||Me(n),32&n.__u,r),t.__v=n.__v,t.__.__k[t.__i]=t,Es(o,t,r),n.__=n.__e=null,t.__e!=s&&Ss(t))}function Ss(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(function(t){return t&&(e.__e=t.__e)}),Ss(e)}function bs(e){(8&e.__g||(e.__g|=8,Ce.push(e),Ot++))&&vn==O.debounceRendering||((vn=O.debounceRendering)||queueMicrotask)(As)}function As(){try{for(var e,t=1;Ce.length;)Ce.length>t&&Ce.sort(ws),e=Ce.shift(),t=Ce.length,8&e.__g&&ni(e)}finally{(Ot=Ce.length)&&(vn||queueMicrotask)(As)}}function Cs(e,t,n,s,o,r,i,l,p,d,u){var m,f,c,h,g,_,S=s.__k||Nt,b=t.length;for(p=si(n,t,S,p,b),m=0;m<b;m++)(c=n.__k[m])!=null&&(f=~c.__i&&S[c.__i]||jt,c.__i=m,_=xn(e,c,f,o,r,i,l,p,d,u),h=c.__e,(f.ref!=c.ref||8&f.__u)&&(f.ref&&Sn(f.ref,null,c,f),c.ref&&u.push(c.ref,c.__c||h,c)),g=g||h,4&c.__u?(p=Ms(c,p,e,!f.__v),f.__e&&(f.__e=null)):typeof c.type=="function"&&_!==void 0?p=_:h&&(p=h.nextSibling),c.__u&=-21);return n.__e=g,p}function si(e,t,n,s,o){var r,i,l,p,d,u,m,f,c,h=n.length,g=h,_=0,S=0,b=e.__k=Array(o);for(r=0;r<o;r++)(i=t[r])!=null&&typeof i!="boolean"&&typeof i!="function"?(typeof i!="object"||i.constructor===String?i=b[r]=lt(null,i):kn(i)?i=b[r]=lt(Te,{children:i}):i.constructor===ct&&i.__b?i=b[r]=lt(i.type,i.props,i.key,i.ref,i.__v):b[r]=i,p=r+_,i.__=e,i.__b=e.__b+1,l=null,~(d=i.__i=oi(i,n,p,g))&&(g--,(l=n[d])&&(l.__u|=2)),l&&l.__v?(i.__u|=16,d==p-1?_--:d==p+1?_++:d!=p&&(d>p?_--:_++,S=1)):(~d||(o>h?_--:o<h&&_++),typeof i.type!="function"&&(i.__u|=4))):b[r]=null;if(S){for(u=[],m=[],r=0;r<o;r++)if((i=b[r])&&16&i.__u){for(_=0,f=u.length;_<f;)u[c=_+f>>1]<i.__i?_=c+1:f=c;u[_]=i.__i,m[r]=_+1}for(_=u.length;r--;)m[r]&&(m[r]==_?_--:b[r].__u|=4)}if(g)for(r=0;r<h;r++)!(l=n[r])||2&l.__u||(l.__e==s&&(s=Me(l)),An(l,l));return s}function Ms(e,t,n,s){var o,r,i,l;if(typeof e.type=="function"){if(e.props.__P)return t;if(o=e.__k)for(r=0;r<o.length;r++)o[r]&&(o[r].__=e,t=Ms(o[r],t,n,!1));return t}for(t&&!t.parentNode&&(t=Me(e))&&!t.parentNode&&(t=null),i=e.__e,l=t;l&&l.nodeType==8;)l=l.nextSibling;for(i!=l&&(!s&&n.moveBefore&&i.parentNode?n.moveBefore(i,t):n.insertBefore(i,t||null)),t=i;(t=t&&t.nextSibling)&&t.nodeType==8&&!t.data.startsWith("$s"););return t}function oi(e,t,n,s){var o,r=e.key,i=e.type,l=t[n],p=l&&!(2&l.__u);if(l===null&&r==null||p&&r==l.key&&i==l.type)return n;if(s>(p?1:0)){for(o=n-1;o>=0;o--)if((l=t[o])&&!(2&l.__u)&&r==l.key&&i==l.type)return o;for(o=n+1;o<t.length;o++)if((l=t[o])&&!(2&l.__u)&&r==l.key&&i==l.type)return o}return-1}function ys(e,t,n){n==null&&(n=""),t[0]=="-"?e.setProperty(t,n):e[t]=n}function Mt(e,t,n,s,o){var r,i;if(t=="style")if(typeof n=="string")e.style.cssText=n;else{if(typeof s=="string"&&(e.style.cssText=s=""),s)for(t in s)n&&t in n||ys(e.style,t);if(n)for(t in n)s&&n[t]==s[t]||ys(e.style,t,n[t])}else if(t[0]=="o"&&t[1]=="n")typeof n!="function"&&(n=null),typeof s!="function"&&(s=null),(e.__e||(e.__e={}))[t]=n,n&&s||(i=gn[t]||(gn[t]=ri(t)),(e.__a||(e.__a={}))[t]=yn,r=t!=(t=t.replace(xs,"$1")),(t=t.slice(2))[0]<"a"&&(t=t.toLowerCase()),n?e.addEventListener(t,i,r):e.removeEventListener(t,i,r));else{if(o=="http://www.w3.org/2000/svg")t=t.replace(/xlink(H|:h)/,"h").replace(/sName$/,"s");else if(t!="width"&&t!="height"&&t!="href"&&t!="list"&&t!="form"&&t!="tabIndex"&&t!="download"&&t!="rowSpan"&&t!="colSpan"&&t!="role"&&t!="popover"&&t in e)try{return void(e[t]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&t[4]!="-"?e.removeAttribute(t):e.setAttribute(t,t=="popover"&&n==1?"":n)}}function ri(e){return function(t){var n=this.__e;if(n){if(n=n[e],t[Tt]==null)t[Tt]=yn++;else if(t[Tt]<this.__a[e])return;return n(O.event?O.event(t):t)}}}function xn(e,t,n,s,o,r,i,l,p,d){var u,m,f,c,h,g,_,S,b,C,A,R,ie,v,y,Z,z,$e,$=t.type;if(t.constructor!==ct)return null;128&n.__u&&(p=32&n.__u,u=n.__c.__z)&&(t.__u|=p,m=r=[],u.nodeType==8?l=Et(u,r):r.push(u),l=r[0]||l),(u=O.__b)&&u(t);e:if(typeof $=="function"){f=i.length;try{if(S=t.props,b=(u=$.prototype)&&u.render,C=(u=$.contextType)&&s[u.__c],A=u?C?C.props.value:u.__:s,(c=n.__c)?(t.__c=c,2&c.__g&&(c.__g|=1)):(b?t.__c=c=new $(S,A):(t.__c=c=new _e(S,A),c.constructor=$,c.render=ai),C&&C.sub(c),c.state||(c.state={}),c.__n=s,c.__g|=8,c.__h=[],c.__k=[]),b&&(c.__s||(c.__s=c.state),$.getDerivedStateFromProps&&(c.__s==c.state&&(c.__s=Pe({},c.__s)),Pe(c.__s,$.getDerivedStateFromProps(S,c.__s)))),h=c.props,g=c.state,c.__v=t,n.__c){if(S!==h&&b&&!$.getDerivedStateFromProps&&c.componentWillReceiveProps&&c.componentWillReceiveProps(S,A),t.__v==n.__v&&!(8&c.__g)||!(4&c.__g)&&c.shouldComponentUpdate&&c.shouldComponentUpdate(S,c.__s,A)===!1){t.__v!=n.__v&&(c.props=S,c.state=c.__s,c.__g&=-9),t.__e=n.__e,t.__k=n.__k,t.__k.some(function(j){j&&(j.__=t)}),Nt.push.apply(c.__h,c.__k),c.__k=[],c.__h.length&&i.push(c),l=Me(n);break e}c.componentWillUpdate&&c.componentWillUpdate(S,c.__s,A),b&&c.componentDidUpdate&&c.__h.push(function(){c.componentDidUpdate(h,g,_)})}else b&&!$.getDerivedStateFromProps&&c.componentWillMount&&c.componentWillMount(),b&&c.componentDidMount&&c.__h.push(c.componentDidMount);c.context=A,c.props=S,c.__P=e,c.__g&=-5,R=O.__r,ie=b?25:0;do c.__g&=-9,R&&R(t),u=c.render(c.props,c.state=c.__s,c.context);while(8&c.__g&&++ie<25);b&&(Nt.push.apply(c.__h,c.__k),c.__k=[]),c.state=c.__s,c.getChildContext&&(s=Pe({},s,c.getChildContext())),b&&n.__c&&c.getSnapshotBeforeUpdate&&(_=c.getSnapshotBeforeUpdate(h,g)),v=u&&u.type===Te&&u.key==null?u.props.children:u,S.__P&&(u=l,o=(e=S.__P).namespaceURI,p=r=null,n.props&&n.props.__P!=e&&(n.__k.some(function(j){j&&An(j,j)}),n.__k=null),l=n.__k?Me(n,0):null),l=Cs(e,kn(v)?v:[v],t,n,s,o,r,i,l,p,d),S.__P&&(t.__e=null,l=u),t.__u&=-161,m&&m.some(Le),c.__h.length&&i.push(c),1&c.__g&&(c.__g&=-4)}catch(j){if(i.length=f,t.__v=null,p||r)if(j&&j.then){if(t.__u|=128|p,r){for(~(z=r.indexOf(l||void 0))||(z=r.length);($e=r[z-1])&&$e.nodeType==8;)z--;for(;z<r.length;z++)if($e=r[z])if(r[z]=null,y){if($e==Z)break}else{if($e.nodeType!=8)break;$e.data.startsWith("$s")&&(Z=Et(y=$e))}}if(!y){for(;l&&l.nodeType==8&&l.nextSibling;)l=l.nextSibling;y=l}(u=Et(y=t.__c.__z||(t.__c.__z=y)))?(t.__e=y,l=u):t.__e=l,l=l&&l.nextSibling}else r&&r.some(Le);else t.__e=n.__e;t.__k||(t.__k=n.__k||[]),j&&j.then||Ts(t),O.__e(j,t,n)}}else l=t.__e=ii(n.__e,t,n,s,o,r,i,p,d,e);return(u=O.diffed)&&u(t),l}function Et(e,t){if(e&&e.nodeType==8&&e.data.startsWith("$s"))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith("$s"))n++;else if(e.data.startsWith("/$s")&&!--n)return e}t&&t.push(e)}}function Ts(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(Ts))}function Es(e,t,n){for(var s=0;s<n.length;)Sn(n[s++],n[s++],n[s++]);O.__c&&O.__c(t,e),e.some(function(o){try{e=o.__h,o.__h=[],e.some(function(r){r.call(o)})}catch(r){O.__e(r,o.__v)}})}function ii(e,t,n,s,o,r,i,l,p,d){var u,m,f,c,h,g,_,S,b=n.props||jt,C=t.props,A=t.type;if(A=="svg"?o="http://www.w3.org/2000/svg":A=="math"?o="http://www.w3.org/1998/Math/MathML":o||(o="http://www.w3.org/1999/xhtml"),r){for(u=0;u<r.length;u++)if((h=r[u])&&(A?h.localName==A:h.nodeType==3)){e=h,r[u]=null;break}}if(!e){if(S=d.ownerDocument||document,!A)return S.createTextNode(C);e=S.createElementNS(o,A,C.is?C:d),l&&(O.__m&&O.__m(t,r),l=!1),r=null}if(A){if(d=A=="template"&&e.content||e,r=A=="textarea"&&C.defaultValue!=null?null:r&&wn.call(d.childNodes),!l&&r)for(b={},u=0;u<e.attributes.length;u++)b[(h=e.attributes[u]).name]=h.value;for(u in b)h=b[u],u=="dangerouslySetInnerHTML"?f=h:u=="children"||u in C||u=="value"&&"defaultValue"in C||u=="checked"&&"defaultChecked"in C||Mt(e,u,null,h,o);for(u in C)h=C[u],u=="children"?c=h:u=="dangerouslySetInnerHTML"?m=h:u=="value"?g=h:u=="checked"?_=h:l&&typeof h!="function"||b[u]===h||Mt(e,u,h,b[u],o);m?(l||f&&(m.__html==f.__html||m.__html==e.innerHTML)||(e.innerHTML=m.__html),t.__k=[]):(f&&(e.textContent=""),(A=="foreignObject"||o=="http://www.w3.org/1998/Math/MathML"&&ti.test(A))&&(o="http://www.w3.org/1999/xhtml"),Cs(d,kn(c)?c:[c],t,n,s,o,r,i,r?r[0]:n.__k&&Me(n,0),l,p),r&&r.some(Le)),l&&A!="textarea"||(u="value",A=="progress"&&g==null?e.removeAttribute(u):g==null||g===e[u]&&(A!="progress"||g)||Mt(e,u,g,b[u],o),u="checked",_!=null&&_!=e[u]&&Mt(e,u,_,b[u],o))}else b===C||l&&e.data==C||(e.data=C);return e}function Sn(e,t,n,s){try{typeof e=="function"?t?t.__x=e(t)||1:s&&(s=s.__c||s.__e)&&(t=s.__x)&&(s.__x=null,typeof t=="function"?t():e(null)):e.current=t}catch(o){O.__e(o,n)}}function An(e,t,n){var s,o,r,i;if(O.unmount&&O.unmount(e),!(s=e.ref)||s.current&&s.current!=e.__e||Sn(s,null,t,e),s=e.__c){if(s.componentWillUnmount)try{s.componentWillUnmount()}catch(l){O.__e(l,t)}s.__P=s.__n=null}if(s=e.__k)for(i=0;i<s.length;i++)s[i]&&An(s[i],t,typeof e.type!="function"||n&&!e.props.__P);!n&&(s=e.__c)&&(s=s.__z)&&(o=Et(s,r=[]))&&(s==e.__e&&r.some(Le),Le(o),Le(s)),n||Le(e.__e),e.__e=e.__c=e.__=null}function ai(e,t,n){return this.constructor(e,n)}function Cn(e,t){var n,s,o,r;O.__&&O.__(e,t),t.nodeType==9&&(t=t.documentElement),s=(n=e&&32&e.__u)?null:t.__k,t.__k=lt(Te,{children:[e]}),o=[],r=[],xn(t,t.__k,s||jt,jt,t.namespaceURI,s?null:t.firstChild?wn.call(t.childNodes):null,o,s?s.__e:t.firstChild,n,r),Es(o,t.__k,r),t.__k.props.children=null}O={__e:function(e,t,n,s){for(var o,r,i;t=t.__;)if((o=t.__c)&&!(1&o.__g)){o.__g|=4;try{if((i=(r=o.constructor)&&r.getDerivedStateFromError)&&o.setState(r.getDerivedStateFromError(e)),o.componentDidCatch&&(o.componentDidCatch(e,s||{}),i=1),i&&8&o.__g)return void(o.__g|=2)}catch(l){e=l}}throw Ot=0,e}},ks=0,bn=function(e){return e!=null&&e.constructor===ct},_e.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=Pe({},this.state)),typeof e=="function"&&(e=e(Pe({},n),this.props)),e&&(Pe(n,e),this.__v&&(t&&this.__k.push(t),bs(this)))},_e.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),bs(this))},_e.prototype.render=Te,Ce=[],Ot=0,ws=function(e,t){return e.__v.__b-t.__v.__b},Tt=Symbol(),xs=/(PointerCapture)$|Capture$/i,yn=0,gn={},ei=0;var We,q,Mn,Os,Tn=Object.is,Pt=0,Bs=[],En=[],U=O,js=U.__b,Ns=U.__r,Ls=U.diffed,Ps=U.__c,Rs=U.unmount,Fs=U.__;function Rt(e,t){U.__h&&U.__h(q,e,Pt||t),Pt=0;var n=q.__H||(q.__H={__:[],__h:[]});return e>=n.__.length&&n.__.push({}),n.__[e]}function L(e){return Pt=1,li(Us,e)}function li(e,t,n){var s=Rt(We++,2);if(s.t=e,!s.__c&&(s.__=[n?n(t):Us(void 0,t),function(r){var i=(s.__N||s.__)[0],l=s.t(i,r);Tn(i,l)||(s.__N=[l,s.__[1]],s.__c.setState({}))}],s.__c=q,!q.__f)){q.__f=!0;var o=q.shouldComponentUpdate;q.shouldComponentUpdate=function(r,i,l){var p=this.__H;if(!p)return!0;var d=!1,u=this.props!=r;if(p.__.some(function(f){f.__N&&(d=!0,Tn(f.__[0],f.__N[0])||(u=!0))}),o){var m=o.call(this,r,i,l);return d?m||u:m}return!d||u}}return s.__}function P(e,t){var n=Rt(We++,3);!U.__s&&jn(n.__H,t)&&(n.__P=!0,n.__=e,n.u=t,q.__H.__h.push(n))}function pt(e,t){var n=Rt(We++,4);!U.__s&&jn(n.__H,t)&&(n.__P=!1,n.__=e,n.u=t,q.__h.push(n))}function K(e){return Pt=5,T(function(){return{current:e}},[])}function T(e,t){var n=Rt(We++,7);return jn(n.__H,t)&&(n.__=e(),n.__H=t),n.__}function ci(){var e;do{for(;e=En.shift();)try{ut(e)}catch(n){U.__e(n,{__:(e=e.__P)&&e.__v})}for(;e=Bs.shift();){var t=e.__H;if(e.__P&&t)try{t.__h.some(ut),t.__h.some(On),t.__h=[]}catch(n){t.__h=[],U.__e(n,e.__v)}}}while(En.length)}U.__b=function(e){q=null,js&&js(e)},U.__=function(e,t){e&&t.__k&&t.__k.__m&&(e.__m=t.__k.__m),Fs&&Fs(e,t)},U.__r=function(e){Ns&&Ns(e),We=0;var t=(q=e.__c).__H;t&&(Mn==q?q.__h=[]:(t.__h.some(ut),t.__h.some(On),We=0),t.__h=[],t.__.some(function(n){n.__N&&(n.__=n.__N),n.u=n.__N=void 0})),Mn=q},U.diffed=function(e){Ls&&Ls(e);var t=e.__c;t&&t.__H&&(t.__H.__h.length&&Is(Bs.push(t)),t.__H.__.some(function(n){n.u&&(n.__H=n.u)})),Mn=q=null},U.__c=function(e,t){t.some(function(n){try{n.__h.some(ut),n.__h=n.__h.filter(function(s){return!s.__||On(s)})}catch(s){n.__h=[function(){throw s}]}}),Ps&&Ps(e,t)},U.unmount=function(e){Rs&&Rs(e);var t,n,s=e.__c;s&&s.__H&&(s.__H.__.some(function(o){try{if(o.__P&&o.__c){if(n===void 0){for(n=e.__;n&&(!n.__c||!n.__c.__P);)n=n.__;n=n&&n.__c}o.__P=n,Is(En.push(o))}else ut(o)}catch(r){t=r}}),s.__H=void 0,t&&U.__e(t,s.__v))};var Ds=typeof requestAnimationFrame=="function";function ui(e){var t,n=function(){clearTimeout(s),Ds&&cancelAnimationFrame(t),setTimeout(e)},s=setTimeout(n,35);Ds&&(t=requestAnimationFrame(n))}function Is(e){e!=1&&Os==U.requestAnimationFrame||((Os=U.requestAnimationFrame)||ui)(ci)}function ut(e){var t=q,n=e.__c;typeof n=="function"&&(e.__c=void 0,n()),q=t}function On(e){var t=q;e.__c=e.__(),q=t}function jn(e,t){return!e||e.length!=t.length||t.some(function(n,s){return!Tn(n,e[s])})}function Us(e,t){return typeof t=="function"?t(e):t}var pi=Symbol.for("preact-signals");function Bt(){if(ve>1)ve--;else{var e,t=!1;for((function(){var o=Dt;for(Dt=void 0;o!==void 0;){var r=o.S;if(r.v===o.v)for(var i=r.t;i!==void 0;i=i.x)i.i===o.i&&(i.i=r.i);o=o.o}})();ft!==void 0;){var n=ft;for(ft=void 0,Ft++;n!==void 0;){var s=n.u;if(n.u=void 0,n.f&=-3,!(8&n.f)&&Ws(n))try{n.c()}catch(o){t||(e=o,t=!0)}n=s}}if(Ft=0,ve--,t)throw e}}function Ln(e){if(ve>0)return e();Nn=++di,ve++;try{return e()}finally{Bt()}}var dt,F=void 0;function mt(e){var t=F,n=dt;F=void 0,dt=void 0;try{return e()}finally{F=t,dt=n}}var ft=void 0,ve=0,Ft=0,di=0,Nn=0,Dt=void 0,It=0;function Hs(e){if(F!==void 0){var t=e.n;if(t===void 0||t.t!==F)return t={i:0,S:e,p:F.s,n:void 0,t:F,e:void 0,x:void 0,r:t},F.s!==void 0&&(F.s.n=t),F.s=t,e.n=t,32&F.f&&e.S(t),t;if(t.i===-1)return t.i=0,t.n!==void 0&&(t.n.p=t.p,t.p!==void 0&&(t.p.n=t.n),t.p=F.s,t.n=void 0,F.s.n=t,F.s=t),t}}function V(e,t){this.v=e,this.i=0,this.n=void 0,this.t=void 0,this.l=0,this.W=t?.watched,this.Z=t?.unwatched,this.name=t?.name}V.prototype.brand=pi;V.prototype.h=function(){return!0};V.prototype.S=function(e){var t=this,n=this.t;n!==e&&e.e===void 0&&(e.x=n,this.t=e,n!==void 0?n.e=e:mt(function(){var s;(s=t.W)==null||s.call(t)}))};V.prototype.U=function(e){var t=this;if(this.t!==void 0){var n=e.e,s=e.x;n!==void 0&&(n.x=s,e.e=void 0),s!==void 0&&(s.e=n,e.x=void 0),e===this.t&&(this.t=s,s===void 0&&mt(function(){var o;(o=t.Z)==null||o.call(t)}))}};V.prototype.subscribe=function(e){var t=this;return te(function(){var n=t.value;mt(function(){return e(n)})},{name:"sub"})};V.prototype.valueOf=function(){return this.value};V.prototype.toString=function(){return this.value+""};V.prototype.toJSON=function(){return this.value};V.prototype.peek=function(){var e=this;return mt(function(){return e.value})};Object.defineProperty(V.prototype,"value",{get:function(){var e=Hs(this);return e!==void 0&&(e.i=this.i),this.v},set:function(e){if(e!==this.v){if(Ft>100)throw new Error("Cycle detected");(function(n){ve!==0&&Ft===0&&n.l!==Nn&&(n.l=Nn,Dt={S:n,v:n.v,i:n.i,o:Dt})})(this),this.v=e,this.i++,It++,ve++;try{for(var t=this.t;t!==void 0;t=t.x)t.t.N()}finally{Bt()}}}});function k(e,t){return new V(e,t)}function Ws(e){for(var t=e.s;t!==void 0;t=t.n)if(t.S.i!==t.i||!t.S.h()||t.S.i!==t.i)return!0;return!1}function qs(e){for(var t=e.s;t!==void 0;t=t.n){var n=t.S.n;if(n!==void 0&&(t.r=n),t.S.n=t,t.i=-1,t.n===void 0){e.s=t;break}}}function Ks(e){for(var t=e.s,n=void 0;t!==void 0;){var s=t.p;t.i===-1?(t.S.U(t),s!==void 0&&(s.n=t.n),t.n!==void 0&&(t.n.p=s)):n=t,t.S.n=t.r,t.r!==void 0&&(t.r=void 0),t=s}e.s=n}function Re(e,t){V.call(this,void 0,t),this.x=e,this.s=void 0,this.g=It-1,this.f=4}Re.prototype=new V;Re.prototype.h=function(){if(this.f&=-3,1&this.f)return!1;if((36&this.f)==32||(this.f&=-5,this.g===It))return!0;if(this.g=It,this.f|=1,this.i>0&&!Ws(this))return this.f&=-2,!0;var e=F;try{qs(this),F=this;var t=this.x();(16&this.f||this.v!==t||this.i===0)&&(this.v=t,this.f&=-17,this.i++)}catch(n){this.v=n,this.f|=16,this.i++}return F=e,Ks(this),this.f&=-2,!0};Re.prototype.S=function(e){if(this.t===void 0){this.f|=36;for(var t=this.s;t!==void 0;t=t.n)t.S.S(t)}V.prototype.S.call(this,e)};Re.prototype.U=function(e){if(this.t!==void 0&&(V.prototype.U.call(this,e),this.t===void 0)){this.f&=-33;for(var t=this.s;t!==void 0;t=t.n)t.S.U(t)}};Re.prototype.N=function(){if(!(2&this.f)){this.f|=6;for(var e=this.t;e!==void 0;e=e.x)e.t.N()}};Object.defineProperty(Re.prototype,"value",{get:function(){if(1&this.f)throw new Error("Cycle detected");var e=Hs(this);if(this.h(),e!==void 0&&(e.i=this.i),16&this.f)throw this.v;return this.v}});function Ee(e,t){return new Re(e,t)}function Vs(e){var t=e.j;if(e.j=void 0,typeof t=="function"){ve++;var n=F;F=void 0;try{t()}catch(s){throw e.f&=-2,e.f|=8,Pn(e),s}finally{F=n,Bt()}}}function Pn(e){for(var t=e.s;t!==void 0;t=t.n)t.S.U(t);e.x=void 0,e.s=void 0,Vs(e)}function fi(e){if(F!==this)throw new Error("Out-of-order effect");Ks(this),F=e,this.f&=-2;try{8&this.f&&Pn(this)}finally{Bt()}}function qe(e,t){this.x=e,this.j=void 0,this.s=void 0,this.u=void 0,this.f=32,this.name=t?.name,dt&&dt.push(this)}qe.prototype.c=function(){var e=this.S();try{if(8&this.f||this.x===void 0)return;var t=this.x();typeof t=="function"&&(this.j=t)}finally{e()}};qe.prototype.S=function(){if(1&this.f)throw new Error("Cycle detected");this.f|=1,this.f&=-9,Vs(this),qs(this),ve++;var e=F;return F=this,fi.bind(this,e)};qe.prototype.N=function(){2&this.f||(this.f|=2,this.u=ft,ft=this)};qe.prototype.d=function(){this.f|=8,1&this.f||Pn(this)};qe.prototype.dispose=function(){this.d()};function te(e,t){var n=new qe(e,t);try{n.c()}catch(o){throw n.d(),o}var s=n.d.bind(n);return s[Symbol.dispose]=s,s}var Gs,Ht,Ut,mi=typeof window<"u"&&!!window.__PREACT_SIGNALS_DEVTOOLS__;var zs=[];te(function(){Gs=this.N})();function Ke(e,t){O[e]=t.bind(null,O[e]||function(){})}function ht(e){if(Ut){var t=Ut;Ut=void 0,t()}Ut=e&&e.S()}function Js(e){var t=this,n=e.data,s=Zs(n);s.name="ReactiveDom",s.value=n;var o=T(function(){for(var l=t,p=t.__v;p=p.__;)if(p.__c){p.__c.__$f|=4;break}var d=Ee(function(){var c=s.value.value;return c===0?0:c===!0?"":c||""}),u=Ee(function(){return!Array.isArray(d.value)&&!bn(d.value)}),m=te(function(){if(this.N=Xs,u.value){var c=d.value;l.__v&&l.__v.__e&&l.__v.__e.nodeType===3&&(l.__v.__e.data=c)}}),f=t.__$u.d;return t.__$u.d=function(){m(),f.call(this)},[u,d]},[]),r=o[0],i=o[1];return r.value?i.peek():i.value}Js.displayName="ReactiveTextNode";Object.defineProperties(V.prototype,{constructor:{configurable:!0,value:Lt(Te,null).constructor},type:{configurable:!0,value:Js},props:{configurable:!0,get:function(){var e=this;return{data:{get value(){return e.value}}}}},__b:{configurable:!0,value:1}});Ke("__b",function(e,t){if(ht(),Ht=void 0,typeof t.type=="string"){var n,s=t.props;for(var o in s)if(o!=="children"){var r=s[o];r instanceof V&&(n||(t.__np=n={}),n[o]=r,s[o]=r.peek())}}e(t)});Ke("__r",function(e,t){if(e(t),t.type!==Te){ht();var n,s=t.__c;s&&(s.__$f&=-2,(n=s.__$u)===void 0&&(s.__$u=n=(function(o,r){var i;return te(function(){i=this},{name:r}),i.c=o,i})((function(o){return function(){var r;mi&&((r=this.y)==null||r.call(this)),o.__$f|=1,o.setState({})}})(s),typeof t.type=="function"?t.type.displayName||t.type.name:""))),Ht=s,ht(n)}});Ke("__e",function(e,t,n,s){ht(),Ht=void 0,e(t,n,s)});Ke("diffed",function(e,t){ht(),Ht=void 0;var n;if(typeof t.type=="string"&&(n=t.__e)){var s=t.__np,o=t.props,r=n.U;if(r)for(var i in r){var l=r[i];l===void 0||s&&i in s||(l.d(),r[i]=void 0)}if(s){r||(r={},n.U=r);for(var p in s){var d=r[p],u=s[p];d===void 0?(d=hi(n,p,u,o),r[p]=d):d.o(u,o)}}}e(t)});function hi(e,t,n,s){var o=t in e&&e.ownerSVGElement===void 0,r=k(n);return{o:function(i,l){r.value=i,s=l},d:te(function(){this.N=Xs;var i=r.value.value;s[t]!==i&&(s[t]=i,o?e[t]=i:i!=null&&(i!==!1||t[4]==="-")?e.setAttribute(t,i):e.removeAttribute(t))})}}Ke("unmount",function(e,t){if(typeof t.type=="string"){var n=t.__e;if(n){var s=n.U;if(s){n.U=void 0;for(var o in s){var r=s[o];r&&r.d()}}}var i=t.__np;if(i){var l=t.props;for(var p in i)l[p]=i[p]}t.__np=void 0}else{var d=t.__c;if(d){d.__$f|=8;var u=d.__$u;u&&(d.__$u=void 0,u.d())}}e(t)});Ke("__h",function(e,t,n,s){s<3&&(t.__$f|=2),e(t,n,s)});_e.prototype.shouldComponentUpdate=function(e,t){if(this.__R)return!0;var n=this.__$u,s=n&&n.s!==void 0;for(var o in t)return!0;if(this.__f||typeof this.u=="boolean"&&this.u===!0){var r=2&this.__$f;if(!(s||r||4&this.__$f)||1&this.__$f)return!0}else if(!(s||4&this.__$f)||3&this.__$f)return!0;for(var i in e)if(i!=="__source"&&e[i]!==this.props[i])return!0;for(var l in this.props)if(!(l in e))return!0;return!1};function Zs(e,t){return T(function(){return k(e,t)},[])}var $i=function(e){queueMicrotask(function(){queueMicrotask(e)})};function _i(){Ln(function(){for(var e;e=zs.shift();)Gs.call(e)})}function Xs(){zs.push(this)===1&&(O.requestAnimationFrame||$i)(_i)}var Wt=B.now-performance.now()/1e3;function w(){return Wt+performance.now()/1e3}function Ys(e){if(typeof e!="number")return;let t=e-performance.now()/1e3;(t>Wt||Wt-t>60)&&(Wt=t)}var ge=k(0),qt=k(0);setInterval(()=>{document.hidden||(ge.value+=1,ge.value%60===0&&(qt.value+=1))},1e3);document.addEventListener("visibilitychange",()=>{document.hidden||(ge.value+=1,qt.value+=1)});var vi=new Set(["current","Ready","Running","Completed","Succeeded","Active","Bound"]),gi=new Set(["in progress","terminating","Terminating","Pending","ContainerCreating","PodInitializing","Ready,SchedulingDisabled","other","waiting"]),$t=["deployments","statefulsets","daemonsets","jobs","cronjobs"],bi=[...$t,"nodes","pods","namespaces"];function be(e){return vi.has(e)?"ok":gi.has(e)||/^Init:\d+\/\d+$/.test(e)?"progress":"bad"}function Ve(e,t){let n={ok:0,progress:0,bad:0,total:0},s=!1;for(let o of t){let r=e?.[o];if(r){s=!0,n.total+=r.total;for(let[i,l]of Object.entries(r.states??{}))n[be(i)]+=l}}return s?n:null}function Qs(e){let t=Ve(e,bi);return t&&t.bad+t.progress}function _t(e,t){let n=t;try{let o=localStorage.getItem(`kas-${e}`);o!==null&&(n=JSON.parse(o))}catch{}(Array.isArray(t)!==Array.isArray(n)||typeof n!=typeof t)&&(n=t);let s=k(n);return te(()=>{let o=JSON.stringify(s.value);try{localStorage.setItem(`kas-${e}`,o)}catch{}}),s}var Fe=k(document.documentElement.dataset.theme||"system");te(()=>{document.documentElement.dataset.theme=Fe.value,document.cookie=`kas-theme=${Fe.value}; Path=/; SameSite=Lax; Secure; Max-Age=31536000`});var ye=_t("density","comfortable");te(()=>{document.documentElement.dataset.density=ye.value});var ae=_t("zone",""),le=_t("shortcuts",!0),Oe=_t("pinned",[]),pe=_t("recent",[]);function eo(e){pe.peek()[0]!==e&&(pe.value=[e,...pe.peek().filter(t=>t!==e)].slice(0,8))}function to(e){let t=Oe.peek();Oe.value=t.includes(e)?t.filter(n=>n!==e):[...t,e]}var Vt={logger:typeof console<"u"?console:void 0,WebSocket:typeof WebSocket<"u"?WebSocket:void 0},I={log(...e){this.enabled&&(e.push(Date.now()),Vt.logger.log("[ActionCable]",...e))}},gt=()=>new Date().getTime(),Kt=e=>(gt()-e)/1e3,bt=class{constructor(t){this.visibilityDidChange=this.visibilityDidChange.bind(this),this.connection=t,this.reconnectAttempts=0}start(){this.isRunning()||(this.startedAt=gt(),delete this.stoppedAt,this.startPolling(),addEventListener("visibilitychange",this.visibilityDidChange),I.log(`ConnectionMonitor started. stale threshold = ${this.constructor.staleThreshold} s`))}stop(){this.isRunning()&&(this.stoppedAt=gt(),this.stopPolling(),removeEventListener("visibilitychange",this.visibilityDidChange),I.log("ConnectionMonitor stopped"))}isRunning(){return this.startedAt&&!this.stoppedAt}recordMessage(){this.pingedAt=gt()}recordConnect(){this.reconnectAttempts=0,delete this.disconnectedAt,I.log("ConnectionMonitor recorded connect")}recordDisconnect(){this.disconnectedAt=gt(),I.log("ConnectionMonitor recorded disconnect")}startPolling(){this.stopPolling(),this.poll()}stopPolling(){clearTimeout(this.pollTimeout)}poll(){this.pollTimeout=setTimeout((()=>{this.reconnectIfStale(),this.poll()}),this.getPollInterval())}getPollInterval(){let{staleThreshold:t,reconnectionBackoffRate:n}=this.constructor,s=Math.pow(1+n,Math.min(this.reconnectAttempts,10)),r=(this.reconnectAttempts===0?1:n)*Math.random();return t*1e3*s*(1+r)}reconnectIfStale(){this.connectionIsStale()&&(I.log(`ConnectionMonitor detected stale connection. reconnectAttempts = ${this.reconnectAttempts}, time stale = ${Kt(this.refreshedAt)} s, stale threshold = ${this.constructor.staleThreshold} s`),this.reconnectAttempts++,this.disconnectedRecently()?I.log(`ConnectionMonitor skipping reopening recent disconnect. time disconnected = ${Kt(this.disconnectedAt)} s`):(I.log("ConnectionMonitor reopening"),this.connection.reopen()))}get refreshedAt(){return this.pingedAt?this.pingedAt:this.startedAt}connectionIsStale(){return Kt(this.refreshedAt)>this.constructor.staleThreshold}disconnectedRecently(){return this.disconnectedAt&&Kt(this.disconnectedAt)<this.constructor.staleThreshold}visibilityDidChange(){document.visibilityState==="visible"&&setTimeout((()=>{(this.connectionIsStale()||!this.connection.isOpen())&&(I.log(`ConnectionMonitor reopening stale connection on visibilitychange. visibilityState = ${document.visibilityState}`),this.connection.reopen())}),200)}};bt.staleThreshold=6;bt.reconnectionBackoffRate=.15;var so={message_types:{welcome:"welcome",disconnect:"disconnect",ping:"ping",confirmation:"confirm_subscription",rejection:"reject_subscription"},disconnect_reasons:{unauthorized:"unauthorized",invalid_request:"invalid_request",server_restart:"server_restart",remote:"remote"},default_mount_path:"/cable",protocols:["actioncable-v1-json","actioncable-unsupported"]},{message_types:vt,protocols:Rn}=so,yi=Rn.slice(0,Rn.length-1),no=[].indexOf,yt=class{constructor(t){this.open=this.open.bind(this),this.consumer=t,this.subscriptions=this.consumer.subscriptions,this.monitor=new bt(this),this.disconnected=!0}send(t){return this.isOpen()?(this.webSocket.send(JSON.stringify(t)),!0):!1}open(){if(this.isActive())return I.log(`Attempted to open WebSocket, but existing socket is ${this.getState()}`),!1;{let t=[...Rn,...this.consumer.subprotocols||[]];return I.log(`Opening WebSocket, current state is ${this.getState()}, subprotocols: ${t}`),this.webSocket&&this.uninstallEventHandlers(),this.webSocket=new Vt.WebSocket(this.consumer.url,t),this.installEventHandlers(),this.monitor.start(),!0}}close({allowReconnect:t}={allowReconnect:!0}){if(t||this.monitor.stop(),this.isOpen())return this.webSocket.close()}reopen(){if(I.log(`Reopening WebSocket, current state is ${this.getState()}`),this.isActive())try{return this.close()}catch(t){I.log("Failed to reopen WebSocket",t)}finally{I.log(`Reopening WebSocket in ${this.constructor.reopenDelay}ms`),setTimeout(this.open,this.constructor.reopenDelay)}else return this.open()}getProtocol(){if(this.webSocket)return this.webSocket.protocol}isOpen(){return this.isState("open")}isActive(){return this.isState("open","connecting")}triedToReconnect(){return this.monitor.reconnectAttempts>0}isProtocolSupported(){return no.call(yi,this.getProtocol())>=0}isState(...t){return no.call(t,this.getState())>=0}getState(){if(this.webSocket){for(let t in Vt.WebSocket)if(Vt.WebSocket[t]===this.webSocket.readyState)return t.toLowerCase()}return null}installEventHandlers(){for(let t in this.events){let n=this.events[t].bind(this);this.webSocket[`on${t}`]=n}}uninstallEventHandlers(){for(let t in this.events)this.webSocket[`on${t}`]=function(){}}};yt.reopenDelay=500;yt.prototype.events={message(e){if(!this.isProtocolSupported())return;let{identifier:t,message:n,reason:s,reconnect:o,type:r}=JSON.parse(e.data);switch(this.monitor.recordMessage(),r){case vt.welcome:return this.triedToReconnect()&&(this.reconnectAttempted=!0),this.monitor.recordConnect(),this.subscriptions.reload();case vt.disconnect:return I.log(`Disconnecting. Reason: ${s}`),this.close({allowReconnect:o});case vt.ping:return null;case vt.confirmation:return this.subscriptions.confirmSubscription(t),this.reconnectAttempted?(this.reconnectAttempted=!1,this.subscriptions.notify(t,"connected",{reconnected:!0})):this.subscriptions.notify(t,"connected",{reconnected:!1});case vt.rejection:return this.subscriptions.reject(t);default:return this.subscriptions.notify(t,"received",n)}},open(){if(I.log(`WebSocket onopen event, using '${this.getProtocol()}' subprotocol`),this.disconnected=!1,!this.isProtocolSupported())return I.log("Protocol is unsupported. Stopping monitor and disconnecting."),this.close({allowReconnect:!1})},close(e){if(I.log("WebSocket onclose event"),!this.disconnected)return this.disconnected=!0,this.monitor.recordDisconnect(),this.subscriptions.notifyAll("disconnected",{willAttemptReconnect:this.monitor.isRunning()})},error(){I.log("WebSocket onerror event")}};var ki=function(e,t){if(t!=null)for(let n in t){let s=t[n];e[n]=s}return e},Fn=class{constructor(t,n={},s){this.consumer=t,this.identifier=JSON.stringify(n),ki(this,s)}perform(t,n={}){return n.action=t,this.send(n)}send(t){return this.consumer.send({command:"message",identifier:this.identifier,data:JSON.stringify(t)})}unsubscribe(){return this.consumer.subscriptions.remove(this)}},Dn=class{constructor(t){this.subscriptions=t,this.pendingSubscriptions=[]}guarantee(t){this.pendingSubscriptions.indexOf(t)==-1?(I.log(`SubscriptionGuarantor guaranteeing ${t.identifier}`),this.pendingSubscriptions.push(t)):I.log(`SubscriptionGuarantor already guaranteeing ${t.identifier}`),this.startGuaranteeing()}forget(t){I.log(`SubscriptionGuarantor forgetting ${t.identifier}`),this.pendingSubscriptions=this.pendingSubscriptions.filter((n=>n!==t))}startGuaranteeing(){this.stopGuaranteeing(),this.retrySubscribing()}stopGuaranteeing(){clearTimeout(this.retryTimeout)}retrySubscribing(){this.retryTimeout=setTimeout((()=>{this.subscriptions&&typeof this.subscriptions.subscribe=="function"&&this.pendingSubscriptions.map((t=>{I.log(`SubscriptionGuarantor resubscribing ${t.identifier}`),this.subscriptions.subscribe(t)}))}),500)}},In=class{constructor(t){this.consumer=t,this.guarantor=new Dn(this),this.subscriptions=[]}create(t,n){let s=t,o=typeof s=="object"?s:{channel:s},r=new Fn(this.consumer,o,n);return this.add(r)}add(t){return this.subscriptions.push(t),this.consumer.ensureActiveConnection(),this.notify(t,"initialized"),this.subscribe(t),t}remove(t){return this.forget(t),this.findAll(t.identifier).length||this.sendCommand(t,"unsubscribe"),t}reject(t){return this.findAll(t).map((n=>(this.forget(n),this.notify(n,"rejected"),n)))}forget(t){return this.guarantor.forget(t),this.subscriptions=this.subscriptions.filter((n=>n!==t)),t}findAll(t){return this.subscriptions.filter((n=>n.identifier===t))}reload(){return this.subscriptions.map((t=>this.subscribe(t)))}notifyAll(t,...n){return this.subscriptions.map((s=>this.notify(s,t,...n)))}notify(t,n,...s){let o;return typeof t=="string"?o=this.findAll(t):o=[t],o.map((r=>typeof r[n]=="function"?r[n](...s):void 0))}subscribe(t){this.sendCommand(t,"subscribe")&&this.guarantor.guarantee(t)}confirmSubscription(t){I.log(`Subscription confirmed ${t}`),this.findAll(t).map((n=>this.guarantor.forget(n)))}sendCommand(t,n){let{identifier:s}=t;return this.consumer.send({command:n,identifier:s})}},Bn=class{constructor(t){this._url=t,this.subscriptions=new In(this),this.connection=new yt(this),this.subprotocols=[]}get url(){return wi(this._url)}send(t){return this.connection.send(t)}connect(){return this.connection.open()}disconnect(){return this.connection.close({allowReconnect:!1})}ensureActiveConnection(){if(!this.connection.isActive())return this.connection.open()}addSubProtocol(t){this.subprotocols=[...this.subprotocols,t]}};function wi(e){if(typeof e=="function"&&(e=e()),e&&!/^wss?:/i.test(e)){let t=document.createElement("a");return t.href=e,t.href=t.href,t.protocol=t.protocol.replace("http","ws"),t.href}else return e}function oo(e=xi("url")||so.default_mount_path){return new Bn(e)}function xi(e){let t=document.head.querySelector(`meta[name='action-cable-${e}']`);if(t)return t.getAttribute("content")}function ro(e,t,n){if(n.snapshot){let i=new Map;for(let[l,p]of Object.entries(n.snapshot)){let d=e.get(l);i.set(l,d!==void 0&&Si(d,p)?d:p)}return t.epoch=n.e,t.sequence=n.s??0,{rows:i,isGap:!1}}let s=n.s??0,o=n.e===t.epoch,r=!o||s>t.sequence+1;if(o&&s>=t.sequence){for(let[i,l]of Object.entries(n.put??{}))e.set(i,l);for(let i of n.delete??[])e.delete(i);t.sequence=s}return{rows:e,isGap:r}}function Si(e,t){return e===t||JSON.stringify(e)===JSON.stringify(t)}var ao=function(e,t,n,s){var o;t[0]=0;for(var r=1;r<t.length;r++){var i=t[r++],l=t[r]?(t[0]|=i?1:2,n[t[r++]]):t[++r];i===3?s[0]=l:i===4?s[1]=Object.assign(s[1]||{},l):i===5?(s[1]=s[1]||{})[t[++r]]=l:i===6?s[1][t[++r]]+=l+"":i?(o=e.apply(l,ao(e,l,n,["",null])),s.push(o),l[0]?t[0]|=2:(t[r-2]=0,t[r]=o)):s.push(l)}return s},io=new Map;function lo(e){var t=io.get(this);return t||(t=new Map,io.set(this,t)),(t=ao(this,t.get(e)||(t.set(e,t=(function(n){for(var s,o,r=1,i="",l="",p=[0],d=function(f){r===1&&(f||(i=i.replace(/^\s*\n\s*|\s*\n\s*$/g,"")))?p.push(0,f,i):r===3&&(f||i)?(p.push(3,f,i),r=2):r===2&&i==="..."&&f?p.push(4,f,0):r===2&&i&&!f?p.push(5,0,!0,i):r>=5&&((i||!f&&r===5)&&(p.push(r,0,i,o),r=6),f&&(p.push(r,f,0,o),r=6)),i=""},u=0;u<n.length;u++){u&&(r===1&&d(),d(u));for(var m=0;m<n[u].length;m++)s=n[u][m],r===1?s==="<"?(d(),p=[p],r=3):i+=s:r===4?i==="--"&&s===">"?(r=1,i=""):i=s+i[0]:l?s===l?l="":i+=s:s==='"'||s==="'"?l=s:s===">"?(d(),r=1):r&&(s==="="?(r=5,o=i,i=""):s==="/"&&(r<5||n[u][m+1]===">")?(d(),r===3&&(p=p[0]),r=p,(p=p[0]).push(2,0,r),r=0):s===" "||s==="	"||s===`
`||s==="\r"?(d(),r=2):i+=s),r===3&&i==="!--"&&(r=4,p=p[0])}return d(),p})(e)),t),arguments,[])).length>1?t:t[0]}var a=lo.bind(Lt);function de(...e){return e.filter(Boolean).join(" ")}var De=k(!1);function co(){return`/ui/sign-in?next=${encodeURIComponent(location.pathname+location.search)}`}async function Gt(){try{await fetch("/ui/sign-out",{method:"POST",headers:{"X-Kas-Csrf":B.csrf},credentials:"same-origin"})}finally{location.assign("/ui/sign-in")}}var zt=class extends Error{constructor(t,n){super(n),this.status=t}};async function fe(e,t={},n){let s=new URLSearchParams(t).toString(),o;try{o=await fetch(s?`${e}?${s}`:e,{headers:{Accept:"application/json"},credentials:"same-origin",signal:n??null})}catch(i){throw n?.aborted?i:new zt(0,"kas did not respond")}let r;try{r=await o.json()}catch{r={}}if(o.status===401&&(De.value=!0),!o.ok)throw new zt(o.status,r.message||`kas responded with ${o.status}`);return Ys(r.asOf),r}async function Un(e,t,n){let s=[],o="",r;do r=await fe(e,{...t,limit:"5000",...o?{continue:o}:{}},n),s.push(...r.items),o=r.continue;while(o&&s.length<Ai);return{items:s,incomplete:r.clusters.incomplete,missingKas:r.missingKas,asOf:r.asOf,isCut:!!o}}var Ai=2e4;var Ci=250,Mi=2e4,Ti=12e4,uo=[15e3,24e4],ke=k({state:"connecting",since:w()}),Ge=k(0),Hn=new URL("/-/cable",location.href);Hn.protocol=Hn.protocol.replace("http","ws");var kt=oo(Hn.href);function Zt(e){ke.peek().state!==e&&(ke.value={state:e,since:w()})}var Wn=class{constructor(t,n){this.key=t,this.params=n,this.rows=new Map,this.version=k(0),this.state=k("loading"),this.reason=k(""),this.status=k(0),this.since=k(w()),this.retryAt=k(0),this.readers=0,this._position={epoch:null,sequence:0},this._subscription=null,this._redraw=0,this._drawn=0,this._retry=0,this._refusals=0}open(){let t=crypto.getRandomValues(new Uint32Array(1))[0].toString(36);this._subscription=kt.subscriptions.create({...this.params,tab:t},{connected:({reconnected:n})=>this._connected(n),disconnected:({willAttemptReconnect:n})=>Ei(n),rejected:()=>this._rejected(),received:n=>this._received(n)})}close(){clearTimeout(this._redraw),clearTimeout(this._retry),this._subscription?.unsubscribe(),this._subscription=null}retry(){this.close(),this.rows.size||(this.state.value="loading"),this.since.value=w(),this._position={epoch:null,sequence:0},this.open()}_connected(t){Zt("open");let{epoch:n,sequence:s}=this._position;t&&n!==null&&this._subscription?.perform("resume",{e:n,s})}_rejected(){Zt("open"),this._subscription=null,this.state.value="refused",this.since.value=w();let t=Math.min(uo[0]*2**this._refusals,uo[1]);this._refusals+=1,this.retryAt.value=w()+t/1e3,this._retry=setTimeout(()=>this.retry(),t);let n=this.params.clusters??[this.params.cluster];fe("/api/v1/clusters",{clusters:n.join(",")}).then(s=>{let o=s.clusters.find(r=>r.state==="denied");this.status.value=o?403:503,this.reason.value=o?.reason??"kas has too much work for this user at the moment"},s=>{this.status.value=s.status,this.reason.value=s.message})}_received(t){let{rows:n,isGap:s}=ro(this.rows,this._position,t);this.rows=n,Ge.value=w(),this._refusals=0,s&&this.retry(),t.snapshot||this.state.peek()!=="live"?(this.state.value="live",this._draw()):this._redraw||(this._redraw=setTimeout(()=>this._draw(),Math.max(0,this._drawn+Ci-performance.now())))}_draw(){clearTimeout(this._redraw),this._redraw=0,this._drawn=performance.now(),this.version.value+=1}};function Ei(e){Zt("lost"),!(e||Jt)&&fe("/ui/api/agents").then(()=>setTimeout(()=>kt.connect(),5e3),()=>{De.peek()||setTimeout(()=>kt.connect(),15e3)})}var Jt=!1,po=0;document.addEventListener("visibilitychange",()=>{clearTimeout(po),document.hidden?po=setTimeout(()=>{Jt=!0,kt.disconnect()},Ti):Jt&&(Jt=!1,Zt("connecting"),kt.connect())});var Xt=new Map;function fo(e){let t=JSON.stringify(e),n=Xt.get(t);return n||(n=new Wn(t,e),Xt.set(t,n),n.open()),n}function Oi(e){e.readers-=1,setTimeout(()=>{e.readers||Xt.get(e.key)!==e||(Xt.delete(e.key),e.close())},Mi)}function we(e){let t=JSON.stringify(e),n=T(()=>fo(e),[t]);return P(()=>(n.readers+=1,()=>Oi(n)),[n]),n}function mo(e){let t=fo(e);return t.readers+=1,t}var xe=k({list:[],isComplete:!0,reason:"",isLoaded:!1,error:null,since:w()});async function wt(){try{let e=await fe("/ui/api/agents");xe.value={list:e.agents,isComplete:e.complete,reason:e.reason??"",isLoaded:!0,error:null,since:w()}}catch(e){xe.value={...xe.peek(),error:e,since:w()}}}var ji=6e4;setInterval(()=>{document.hidden||wt()},ji);var ho=null,Ni=k(["*"]);function ce(){return ho??=mo({channel:"FleetChannel",clusters:Ni.peek()}),ho}var _o=new Map,Se=Ee(()=>{let e=ce();e.version.value;let{list:t}=xe.value,n=new Map,s=new Map(t.map(r=>[r.id,r])),o=new Map(t.map(r=>[r.name,r]));for(let[r,i]of e.rows){if(!r.startsWith("cluster/"))continue;let l=r.slice(8),p=s.get(l)??o.get(i.name);n.set(r,$o(r,l,i,p))}for(let r of t){let i=`cluster/${r.id}`;if(n.has(i))continue;let l=e.state.value==="live"?"never":r.connected?"live":"offline";n.set(i,$o(i,r.id,Li[l],r))}return _o=n,[...n.values()]}),Li={never:{state:"never",name:""},live:{state:"live",name:""},offline:{state:"offline",name:""}};function $o(e,t,n,s){let o=_o.get(e);return o&&o.source===n&&o.agentkVersion===(s?.agentkVersion??"")&&o.kubernetesVersion===(s?.kubernetesVersion??"")&&(o.labels===s?.labels||JSON.stringify(o.labels)===JSON.stringify(s?.labels??{}))?o:{key:e,id:t,source:n,name:n.name||s?.name||t,labels:s?.labels??{},state:n.state,lastSeen:n.lastSeen||null,summary:n.summary,nodes:Ve(n.summary,["nodes"]),workloads:Ve(n.summary,$t),problems:Qs(n.summary),kubernetesVersion:s?.kubernetesVersion??"",agentkVersion:s?.agentkVersion??""}}var vo=Ee(()=>new Map(Se.value.map(e=>[e.name,e]))),Yt=Ee(()=>{let e={clusters:0,live:0,late:0,offline:0,never:0,denied:0,nodes:0,brokenNodes:0,workloads:0,brokenWorkloads:0,problems:0,troubled:0,oldProblems:0};for(let t of Se.value)e.clusters+=1,e[t.state]+=1,e.nodes+=t.nodes?.total??0,e.brokenNodes+=t.nodes?.bad??0,e.workloads+=t.workloads?.total??0,e.brokenWorkloads+=t.workloads?.bad??0,e.problems+=t.problems??0,t.problems&&(e.troubled+=1),t.state!=="live"&&(e.oldProblems+=t.problems??0);return e});function ze(){return xe.value.isComplete||!pe.value.length?["*"]:pe.value}function X({title:e,above:t,actions:n,children:s}){return P(()=>{document.title=`${e} · kas`},[e]),a`
<header class="heading">
${t}
<div class="heading__line"><h1 tabindex="-1">${e}</h1>${n}</div>
${s}
</header>`}var Pi=1e4,go=3e4,Ri=12,qn=class{constructor(t){this.load=t,this.state=k({data:null,error:null,since:w(),retryAt:0}),this.version=-1,this._timer=0,this._began=-1/0,this._abort=null}async reload(){clearTimeout(this._timer),this._abort?.abort();let t=new AbortController;this._abort=t,this._began=performance.now(),this.version=ce().version.peek();try{let n=await this.load(t.signal);t.signal.aborted||(this.state.value={data:n,error:null,since:w(),retryAt:0})}catch(n){if(t.signal.aborted)return;let s=w()+go/1e3;this.state.value={...this.state.peek(),error:n,since:w(),retryAt:s},this._timer=setTimeout(()=>this.reload(),go)}}refresh(){document.hidden||this.state.peek().error||this.version===ce().version.peek()||(clearTimeout(this._timer),this._timer=setTimeout(()=>this.reload(),Math.max(0,this._began+Pi-performance.now())))}stop(){clearTimeout(this._timer)}},Je=new Map;function bo(e,t){let n=T(()=>{let s=Je.get(e)??new qn(t);return Je.delete(e),Je.set(e,s),Je.size>Ri&&Je.delete(Je.keys().next().value),s},[e]);return P(()=>{let{state:s}=n;(s.peek().data===null||s.peek().error)&&n.reload();let o=ce().version.subscribe(()=>n.refresh());return()=>{o(),n.stop()}},[n]),n}var E="/ui";function Kn(){return{path:location.pathname.replace(/\/+$/,"")||E,params:new URLSearchParams(location.search)}}var N=k(Kn());function D(e,{replace:t=!1}={}){if(e===location.pathname+location.search)return;let n=N.peek().path;t?history.replaceState(history.state,"",e):(history.replaceState({scroll:scrollY},""),history.pushState(null,"",e)),N.value=Kn(),N.peek().path!==n&&Fi()}function Fi(){scrollTo(0,0),requestAnimationFrame(()=>{document.querySelector("h1")?.focus({preventScroll:!0})})}function H(e,t=N.value.path){let n=new URLSearchParams(N.value.params);for(let[s,o]of Object.entries(e))o?n.set(s,o):n.delete(s);return me(t,n)}function me(e,t={}){let n=new URLSearchParams(t).toString().replaceAll(/%(?:2F|2C|3D|7E|3A)/g,decodeURIComponent);return n?`${e}?${n}`:e}function M(e,t="",n={}){return me(`${E}/clusters/${encodeURIComponent(e)}${t&&`/${t}`}`,n)}addEventListener("popstate",e=>{N.value=Kn();let t=e.state?.scroll??0;requestAnimationFrame(()=>requestAnimationFrame(()=>scrollTo(0,t)))});history.scrollRestoration="manual";document.addEventListener("click",e=>{if(e.defaultPrevented||e.button||e.metaKey||e.ctrlKey||e.shiftKey||e.altKey)return;let t=e.target instanceof Element?e.target.closest("a[href]"):null;!(t instanceof HTMLAnchorElement)||t.target||t.hasAttribute("download")||t.origin!==location.origin||!Di(t.pathname)||(e.preventDefault(),D(t.pathname+t.search,{replace:t.dataset.replace!==void 0}))});function Di(e){return(e===E||e.startsWith(`${E}/`))&&!/^\/ui\/(?:static\/|api\/|sign-)/.test(e)}var yo=[["rect",{width:"20",height:"5",x:"2",y:"3",rx:"1"}],["path",{d:"M4 8v11a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2V8"}],["path",{d:"M10 12h4"}]];var ko=[["path",{d:"M12 5v14"}],["path",{d:"m19 12-7 7-7-7"}]];var wo=[["path",{d:"m5 12 7-7 7 7"}],["path",{d:"M12 19V5"}]];var xo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M4.929 4.929 19.07 19.071"}]];var So=[["path",{d:"M10.268 21a2 2 0 0 0 3.464 0"}],["path",{d:"M3.262 15.326A1 1 0 0 0 4 17h16a1 1 0 0 0 .74-1.673C19.41 13.956 18 12.499 18 8A6 6 0 0 0 6 8c0 4.499-1.411 5.956-2.738 7.326"}]];var Ao=[["path",{d:"M2.97 12.92A2 2 0 0 0 2 14.63v3.24a2 2 0 0 0 .97 1.71l3 1.8a2 2 0 0 0 2.06 0L12 19v-5.5l-5-3-4.03 2.42Z"}],["path",{d:"m7 16.5-4.74-2.85"}],["path",{d:"m7 16.5 5-3"}],["path",{d:"M7 16.5v5.17"}],["path",{d:"M12 13.5V19l3.97 2.38a2 2 0 0 0 2.06 0l3-1.8a2 2 0 0 0 .97-1.71v-3.24a2 2 0 0 0-.97-1.71L17 10.5l-5 3Z"}],["path",{d:"m17 16.5-5-3"}],["path",{d:"m17 16.5 4.74-2.85"}],["path",{d:"M17 16.5v5.17"}],["path",{d:"M7.97 4.42A2 2 0 0 0 7 6.13v4.37l5 3 5-3V6.13a2 2 0 0 0-.97-1.71l-3-1.8a2 2 0 0 0-2.06 0l-3 1.8Z"}],["path",{d:"M12 8 7.26 5.15"}],["path",{d:"m12 8 4.74-2.85"}],["path",{d:"M12 13.5V8"}]];var Co=[["path",{d:"M20 6 9 17l-5-5"}]];var Mo=[["path",{d:"m6 9 6 6 6-6"}]];var To=[["path",{d:"m15 18-6-6 6-6"}]];var Eo=[["path",{d:"m9 18 6-6-6-6"}]];var Oo=[["circle",{cx:"12",cy:"12",r:"10"}],["line",{x1:"12",x2:"12",y1:"8",y2:"12"}],["line",{x1:"12",x2:"12.01",y1:"16",y2:"16"}]];var jo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"m16 9-5.5 5.5L8 12"}]];var No=[["path",{d:"M10.1 2.182a10 10 0 0 1 3.8 0"}],["path",{d:"M13.9 21.818a10 10 0 0 1-3.8 0"}],["path",{d:"M17.609 3.721a10 10 0 0 1 2.69 2.7"}],["path",{d:"M2.182 13.9a10 10 0 0 1 0-3.8"}],["path",{d:"M20.279 17.609a10 10 0 0 1-2.7 2.69"}],["path",{d:"M21.818 10.1a10 10 0 0 1 0 3.8"}],["path",{d:"M3.721 6.391a10 10 0 0 1 2.7-2.69"}],["path",{d:"M6.391 20.279a10 10 0 0 1-2.69-2.7"}]];var Lo=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M9.09 9a3 3 0 0 1 5.83 1c0 2-3 3-3 3"}],["path",{d:"M12 17h.01"}]];var Po=[["path",{d:"M17.925 20.056a6 6 0 0 0-11.851.001"}],["circle",{cx:"12",cy:"11",r:"4"}],["circle",{cx:"12",cy:"12",r:"10"}]];var Ro=[["circle",{cx:"12",cy:"12",r:"10"}],["path",{d:"M12 6v6l4 2"}]];var Fo=[["path",{d:"M10.94 5.274A7 7 0 0 1 15.71 10h1.79a4.5 4.5 0 0 1 4.222 6.057"}],["path",{d:"M18.796 18.81A4.5 4.5 0 0 1 17.5 19H9A7 7 0 0 1 5.79 5.78"}],["path",{d:"m2 2 20 20"}]];var Do=[["rect",{width:"14",height:"14",x:"8",y:"8",rx:"2",ry:"2"}],["path",{d:"M4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2"}]];var Io=[["path",{d:"M12 15V3"}],["path",{d:"M21 15v4a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2v-4"}],["path",{d:"m7 10 5 5 5-5"}]];var Bo=[["path",{d:"M15 3h6v6"}],["path",{d:"M10 14 21 3"}],["path",{d:"M18 13v6a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V8a2 2 0 0 1 2-2h6"}]];var Uo=[["path",{d:"M12.83 2.18a2 2 0 0 0-1.66 0L2.6 6.08a1 1 0 0 0 0 1.83l8.58 3.91a2 2 0 0 0 1.66 0l8.58-3.9a1 1 0 0 0 0-1.83z"}],["path",{d:"M2 12a1 1 0 0 0 .58.91l8.6 3.91a2 2 0 0 0 1.65 0l8.58-3.9A1 1 0 0 0 22 12"}],["path",{d:"M2 17a1 1 0 0 0 .58.91l8.6 3.91a2 2 0 0 0 1.65 0l8.58-3.9A1 1 0 0 0 22 17"}]];var Ho=[["path",{d:"M3 5h.01"}],["path",{d:"M3 12h.01"}],["path",{d:"M3 19h.01"}],["path",{d:"M8 5h13"}],["path",{d:"M8 12h13"}],["path",{d:"M8 19h13"}]];var Wo=[["path",{d:"M21 12a9 9 0 1 1-6.219-8.56"}]];var qo=[["path",{d:"M12 17v5"}],["path",{d:"M9 10.76a2 2 0 0 1-1.11 1.79l-1.78.9A2 2 0 0 0 5 15.24V16a1 1 0 0 0 1 1h12a1 1 0 0 0 1-1v-.76a2 2 0 0 0-1.11-1.79l-1.78-.9A2 2 0 0 1 15 10.76V7a1 1 0 0 1 1-1 2 2 0 0 0 0-4H8a2 2 0 0 0 0 4 1 1 0 0 1 1 1z"}]];var Ko=[["path",{d:"M5 12h14"}],["path",{d:"M12 5v14"}]];var Vo=[["path",{d:"m21 21-4.34-4.34"}],["circle",{cx:"11",cy:"11",r:"8"}]];var Go=[["rect",{width:"20",height:"8",x:"2",y:"2",rx:"2",ry:"2"}],["rect",{width:"20",height:"8",x:"2",y:"14",rx:"2",ry:"2"}],["line",{x1:"6",x2:"6.01",y1:"6",y2:"6"}],["line",{x1:"6",x2:"6.01",y1:"18",y2:"18"}]];var zo=[["path",{d:"M3 9h18"}],["path",{d:"M9 3v18"}],["rect",{x:"3",y:"3",width:"18",height:"18",rx:"2"}]];var Jo=[["path",{d:"m21.73 18-8-14a2 2 0 0 0-3.48 0l-8 14A2 2 0 0 0 4 21h16a2 2 0 0 0 1.73-3"}],["path",{d:"M12 9v4"}],["path",{d:"M12 17h.01"}]];var Zo=[["path",{d:"M18 6 6 18"}],["path",{d:"m6 6 12 12"}]];var ha={archive:yo,arrowDown:ko,arrowUp:wo,ban:xo,bell:So,boxes:Ao,check:Co,chevronDown:Mo,chevronLeft:To,chevronRight:Eo,circleAlert:Oo,circleCheck:jo,circleDashed:No,circleHelp:Lo,circleUser:Po,clock:Ro,cloudOff:Fo,copy:Do,download:Io,externalLink:Bo,layers:Uo,list:Ho,loader:Wo,pin:qo,plus:Ko,search:Vo,server:Go,table:zo,triangleAlert:Jo,x:Zo};function x({name:e,size:t=16,class:n=""}){return a`
<svg class=${`icon ${n}`} width=${t} height=${t} viewBox="0 0 24 24" aria-hidden="true">
${ha[e].map(([s,o])=>a`<${s} ...${o} />`)}
</svg>`}var $a={live:{icon:"circleCheck",level:"ok"},late:{icon:"clock",level:"progress"},offline:{icon:"cloudOff",level:"off"},never:{icon:"circleDashed",level:"off"},denied:{icon:"ban",level:"off"}},_a={ok:"circleCheck",progress:"loader",bad:"circleAlert"};function xt({state:e}){let{icon:t,level:n}=$a[e]??{icon:"circleHelp",level:"off"};return a`<span class=${`badge badge--${n}`}><${x} name=${t} />${e}</span>`}function ne({state:e,health:t}){let n=be(t||e);return a`<span class=${`badge badge--${n}`}><${x} name=${_a[n]} /><span>${e||t}</span></span>`}function Xo(e){let t=e.length>24?e.length-10:e.length;return[e.slice(0,t),e.slice(t)]}function Y({text:e}){let[t,n]=Xo(e);return a`<span class="name" title=${e}><span class="name__start">${t}</span>${n&&a`<span class="name__end">${n}</span>`}</span>`}var va=/(?:"[^"]*"?|[^\s"])+/g,Qo=/^([A-Za-z0-9_./-]+)(!=|!~|>=|<=|=|~|>|<)([\s\S]*)$/;function St(e){return(e.match(va)??[]).map(ga).filter(t=>t.values.some(Boolean))}function ga(e){let t=Qo.exec(e);if(t){let[,o,r,i]=t,l=i.match(/"[^"]*"?|[^,"]+/g)??[];return{key:o,operator:r,values:l.map(Vn),source:e}}let n=e.length>1&&e.startsWith("-"),s=Vn(n?e.slice(1):e);return{key:"",operator:n?"-text":"text",values:[s],source:e}}function Vn(e){return e.replaceAll('"',"").toLowerCase()}function Gn(e){return/[\s",]/.test(e)?`"${e.replaceAll('"',"")}"`:e}function zn(e,t){let n=e.map(s=>tr(s,t));return n.length===1?n[0]:s=>{for(let o of n)if(!o(s))return!1;return!0}}function er(e,t,n){return e.map(o=>{let r=zn(e.filter(l=>l!==o),t),i=tr(o,t);return{term:o,hidden:n.filter(l=>r(l)&&!i(l)).length}}).filter(o=>o.hidden).sort((o,r)=>r.hidden-o.hidden)}var Yo=new WeakMap;function tr({key:e,operator:t,values:n},s){if(t==="text"||t==="-text"){let i=t==="text";return l=>ba(l,s).includes(n[0])===i}let o=s.find(i=>i.id===e),r=o?i=>o.text(i).toLowerCase():i=>String(i.labels?.[e]??"").toLowerCase();if(t===">"||t==="<"||t===">="||t==="<="){let i=Number.parseFloat(n[0]),l=o?.value??r;return p=>{let d=l(p),u=typeof d=="number"?d:Number.parseFloat(d??"");return t===">"?u>i:t==="<"?u<i:t===">="?u>=i:u<=i}}switch(t){case"=":return n.length===1?i=>r(i)===n[0]:i=>n.includes(r(i));case"!=":return i=>!n.includes(r(i));case"~":return i=>n.some(l=>r(i).includes(l));default:return i=>!n.some(l=>r(i).includes(l))}}function ba(e,t){let n=Yo.get(e);if(n===void 0){let s=t.filter(o=>!o.noFilter).map(o=>o.text(e));if(e.labels)for(let[o,r]of Object.entries(e.labels))s.push(`${o}=${r}`);n=s.join(`
`).toLowerCase(),Yo.set(e,n)}return n}function nr(e,t,n,s=8){let o=Qo.exec(e);if(!o)return ya(e.toLowerCase(),t,n,s);let[,r,i,l]=o,p=l.lastIndexOf(","),[d,u]=[l.slice(0,p+1),l.slice(p+1).replaceAll('"',"").toLowerCase()],m=t.find(h=>h.id===r),f=new Map;for(let h of n){let g=m?m.text(h):h.labels?.[r];g&&f.set(g,(f.get(g)??0)+1)}let c=new Set((d.match(/"[^"]*"|[^,"]+/g)??[]).map(Vn));return[...f].filter(([h])=>!c.has(h.toLowerCase())).filter(([h])=>h.toLowerCase().includes(u)&&h.toLowerCase()!==u).sort(([h,g],[_,S])=>Number(_.toLowerCase().startsWith(u))-Number(h.toLowerCase().startsWith(u))||S-g).slice(0,s).map(([h,g])=>({text:`${r}${i}${d}${Gn(h)}`,label:h,count:g}))}function ya(e,t,n,s){let o=new Map;for(let r of t)r.noFilter||o.set(r.id,0);for(let r of n)for(let i of Object.keys(r.labels??{}))o.set(i,(o.get(i)??0)+1);return[...o].filter(([r])=>r.toLowerCase().includes(e)).sort(([r],[i])=>Number(i.toLowerCase().startsWith(e))-Number(r.toLowerCase().startsWith(e))).slice(0,s).map(([r,i])=>({text:`${r}=`,label:r,count:i}))}var sr=[["d",86400],["h",3600],["m",60],["s",1]];function Q(e){let t=Math.max(0,Math.floor(e));if(t<120)return`${t}s`;for(let n=0;n<3;n+=1){let[s,o]=sr[n];if(t<o)continue;let r=Math.floor(t/o),[i,l]=sr[n+1],p=Math.floor(t%o/l);return s==="m"||!p||r>=10?`${r}${s}`:`${r}${s} ${p}${i}`}return`${t}s`}function Qt(e){return typeof e=="number"?e:typeof e=="string"&&e?Date.parse(e)/1e3:Number.NaN}var or=new Map;function Jn(e,t){if(!Number.isFinite(e))return"";let n=or.get(t);n||(n=new Intl.DateTimeFormat("en-CA",{year:"numeric",month:"2-digit",day:"2-digit",hour:"2-digit",minute:"2-digit",second:"2-digit",hourCycle:"h23",timeZoneName:"short",...t?{timeZone:t}:{}}),or.set(t,n));let s={};for(let{type:o,value:r}of n.formatToParts(e*1e3))s[o]=r;return`${s.year}-${s.month}-${s.day} ${s.hour}:${s.minute}:${s.second} ${s.timeZoneName}`}function W({at:e,suffix:t=""}){if(!Number.isFinite(e))return a`<span class="muted">–</span>`;let n=w()-e;(n<120?ge:qt).value;let s=Jn(e,ae.value);return a`<time class="age" dateTime=${rr(e)} title=${s}>${Q(n)}${t}</time>`}function en({at:e}){return a`<time dateTime=${rr(e)}>${Jn(e,ae.value)}</time>`}function rr(e){return Math.abs(e)<864e10?new Date(e*1e3).toISOString():""}var ka=5e3,ir=k(""),tn="",Zn=0;function ar(e){tn=e,Zn||lr()}function lr(){ir.value=tn,tn="",Zn=setTimeout(()=>{Zn=0,tn&&lr()},ka)}function cr(){return a`<div class="unseen" role="status">${ir}</div>`}function he({text:e,label:t,children:n}){let[s,o]=L(!1);async function r(){await navigator.clipboard.writeText(e),ar(`copied ${t}`),o(!0),setTimeout(()=>o(!1),1500)}return a`
<button type="button" class=${n?"button button--quiet":"icon-button"} onClick=${r}
aria-label=${n?null:`copy ${t}`} title=${`copy ${t}`}>
<${x} name=${s?"check":"copy"} size=${14} />${n}
</button>`}function Ie({text:e}){return a`
<div class="command"><code>${e}</code><${he} text=${e} label="command" /></div>`}function ur(e,t,n){let s=document.createElement("a");s.href=URL.createObjectURL(new Blob([t],{type:n})),s.download=e,s.click(),setTimeout(()=>URL.revokeObjectURL(s.href),1e3)}function ee({label:e="loading",rows:t=8}){let[n,s]=L(!1);return P(()=>{let o=setTimeout(()=>s(!0),200);return()=>clearTimeout(o)},[]),a`
<div class="skeleton" role="status" aria-label=${e}>
${n&&Array.from({length:t},(o,r)=>a`<div class="skeleton__row" key=${r}></div>`)}
</div>`}function J({icon:e="circleCheck",title:t,children:n}){return a`
<div class="empty">
<${x} name=${e} size=${28} class="empty__icon" />
<h2 class="empty__title">${t}</h2>
${n}
</div>`}function Ze({terms:e,columns:t,rows:n,noun:s}){let o=er(e,t,n),r=e.map(i=>i.source);return a`
<${J} icon="search" title=${`No ${s} match this filter`}>
${o.slice(0,3).map(({term:i,hidden:l})=>a`
<p key=${i.source}>${l} hidden by <span class="chip">${i.source}</span>${" "}
<a href=${H({q:r.filter(p=>p!==i.source).join(" ")})}>remove</a></p>`)}
<p><button type="button" class="button" onClick=${()=>D(H({q:null}))}>Clear filter</button></p>
<//>`}function pr({cluster:e,resources:t,reason:n}){return a`
<${J} icon="ban" title=${`You may not list ${t.join(", ")} in all namespaces of ${e}`}>
${n&&a`<p>${n}</p>`}
<p>Objects of namespaces where you may list them appear here. To check a right in this cluster:</p>
${t.slice(0,3).map(s=>a`
<${Ie} key=${s} text=${`kubectl auth can-i list ${s} --all-namespaces`} />`)}
<//>`}function oe({what:e,status:t,message:n,since:s,retryAt:o=0,retry:r}){ge.value;let i=o-w(),l=t===0?"No response from kas":t===403?"Refused by kas":`Error of kas (${t})`;return a`
<${J} icon=${t===403?"ban":"triangleAlert"} title=${`${e}: ${l.toLowerCase()}`}>
<p>${n}</p>
<p class="muted">since <${W} at=${s} suffix=" ago" />${i>0&&`, next attempt in ${Q(i)}`}</p>
<p><button type="button" class="button" onClick=${r}>Retry now</button></p>
<//>`}function Xe({incomplete:e,missingKas:t=0,isCut:n=!1}){if(!e.length&&!t&&!n)return null;let s=[];return e.length&&s.push(e.length===1?`${e[0].name}: ${e[0].state}`:`${e.length} clusters are incomplete`),t&&s.push(`${t} kas did not respond`),n&&s.push("there are more rows than this list can have: filter by namespace"),a`
<details class="notice notice--warning">
<summary><${x} name="triangleAlert" /> <span>${s.join("; ")}</span></summary>
<ul class="incomplete">
${e.slice(0,100).map(o=>a`
<li key=${o.name}><strong>${o.name}</strong> ${o.state}${o.reason?`: ${o.reason}`:""}
${o.lastSeen?a`, last data <${W} at=${o.lastSeen} suffix=" ago" />`:""}</li>`)}
${e.length>100&&a`<li>and ${e.length-100} more</li>`}
</ul>
</details>`}function fr(e,t){let n=[e.map(s=>dr(s.title))];for(let s of t)n.push(e.map(o=>dr(o.text(s))));return n.map(s=>`${s.join(",")}\r
`).join("")}function dr(e){let t=/^[=+\-@\t\r]/.test(e)?`'${e}`:e;return/[",\r\n]/.test(t)?`"${t.replaceAll('"','""')}"`:t}function Ye({name:e,columns:t,rows:n}){return a`
<button type="button" class="icon-button" onClick=${()=>ur(`${e}.csv`,fr(t,n),"text/csv")} aria-label="save as CSV" title="save as CSV"
disabled=${!n.length}><${x} name="download" /></button>`}function Qe({columns:e,rows:t,hits:n,total:s,noun:o,example:r,children:i}){let l=N.value.params.get("q")??"",[p,d]=L(""),[u,m]=L(!1),[f,c]=L(-1),h=K(null),g=K(l),_=l.endsWith(p)&&g.current===l?p:"",S=St(_?l.slice(0,l.length-_.length):l);P(()=>{g.current!==l&&(g.current=l,d(""))},[l]);function b(v,y,Z){let z=[...v,y].filter(Boolean).join(" ");g.current=z,d(y),D(H({q:z||null,open:null}),{replace:Z})}let C=S.map(v=>v.source);function A(v){c(-1),/(?:!=|!~|>=|<=|=|~|>|<)$/.test(v)?b(C,v,!0):b([...C,v],"",!1)}let R=u?nr(_,e,t):[];function ie(v){if(v.key==="ArrowDown"||v.key==="ArrowUp"){v.preventDefault(),m(!0);let y=v.key==="ArrowDown"?1:-1;c(Z=>R.length?(Z+y+R.length+(Z<0&&y<0?1:0))%R.length:-1)}else v.key==="Tab"&&u&&_&&R.length&&f>=0?(v.preventDefault(),A(R[f].text)):v.key==="Enter"?f>=0&&R[f]?A(R[f].text):_.trim()&&A(_.trim()):v.key===" "&&wa(_)?(v.preventDefault(),A(_)):v.key==="Escape"?(v.stopPropagation(),u&&R.length?m(!1):_?b(C,"",!0):h.current?.blur()):v.key==="Backspace"&&!_&&C.length&&(v.preventDefault(),b(C.slice(0,-1),C[C.length-1],!0))}return a`
<div class="toolbar">
<div class="filter">
<${x} name="search" class="filter__icon" />
<div class="filter__terms">
${S.map((v,y)=>a`
<span class="chip chip--term" key=${`${v.source}${y}`}>${v.source}<button type="button"
aria-label=${`remove filter ${v.source}`} onClick=${()=>{b(C.filter((Z,z)=>z!==y),_,!1),h.current?.focus()}}><${x} name="x" size=${12} /></button></span>`)}
<input ref=${h} id="filter" type="text" role="combobox" aria-label=${`filter ${o}`} spellcheck="false"
autocomplete="off" autocapitalize="off" placeholder=${S.length?"":`Filter, such as ${r}`}
aria-expanded=${R.length>0} aria-controls="filter-offers" aria-autocomplete="list"
aria-activedescendant=${f>=0&&R.length?`filter-offer-${f}`:null} value=${_}
onInput=${v=>{m(!0),c(-1),b(C,v.target.value.replace(/^\s+/,""),!0)}}
onKeyDown=${ie} onFocus=${()=>m(!!_)} onBlur=${()=>m(!1)} />
</div>
${l&&a`
<button type="button" class="icon-button" aria-label="clear filter" title="clear filter"
onClick=${()=>{b([],"",!1),h.current?.focus()}}><${x} name="x" /></button>`}
<ul class=${de("offers",R.length>0&&"is-open")} id="filter-offers" role="listbox"
aria-label="completions">
${R.map((v,y)=>a`
<li key=${v.text} id=${`filter-offer-${y}`} role="option" aria-selected=${y===f}
class=${de("offer",y===f&&"is-chosen")}
onPointerDown=${Z=>{Z.preventDefault(),A(v.text)}}>
<span class="offer__text">${v.label}</span>${v.count>0&&a`<span class="muted">${v.count}</span>`}
</li>`)}
</ul>
</div>
<span class="hits" aria-live="off">${l?`${n} of ${s}`:`${s}`} ${o}</span>
${i}
</div>`}function wa(e){let[t]=St(e);return!!t&&(t.operator!=="text"||e.length>1)&&(e.match(/"/g)??[]).length%2===0}var xa=new Intl.Collator("en",{numeric:!0});function Sa(e,t,n){let s=e==null||e===""||Number.isNaN(e),o=t==null||t===""||Number.isNaN(t);if(s||o)return Number(s)-Number(o);if(typeof e=="number"&&typeof t=="number")return n*(e-t);let[r,i]=[String(e),String(t)];return r===i?0:n*xa.compare(r,i)}function Xn(e,t){let n=e.startsWith("-")?-1:1,s=t.find(o=>o.id===e.replace(/^-/,""));return s?{column:s,direction:n}:null}function nn(e,{column:t,direction:n}){let s=e.map(o=>({row:o,value:t.value(o)}));return s.sort((o,r)=>Sa(o.value,r.value,n)||(o.row.key<r.row.key?-1:+(o.row.key>r.row.key))),s.map(o=>o.row)}function et(e,t,n,s=[]){let{params:o}=N.value,[r,i,l]=[o.get("q")??"",o.get("sort")??"",o.get("group")??""],p=Xn(i,t),d=p??Xn(n,[...t,...s]),u=T(()=>d?nn(e,d):[...e],[e,t,i,n]),m=T(()=>St(r),[r]),f=T(()=>m.length?u.filter(zn(m,t)):u,[u,m,t]),c=T(()=>l?Aa(f,l):f.map(h=>({key:h.key,row:h})),[f,l]);return{sort:p,terms:m,found:f,items:c,group:l,query:`${r}
${i}
${l}
${o.get("ns")??""}`}}function Aa(e,t){let n=new Map;for(let o of e){let r=o.labels?.[t]??"",i=n.get(r);i?i.push(o):n.set(r,[o])}return[...n.keys()].sort((o,r)=>+!o-+!r||(o<r?-1:1)).flatMap(o=>{let r=n.get(o)??[];return[{key:`group/${o}`,title:o?`${t}=${o}`:`without ${t}`,count:r.length},...r.map(i=>({key:i.key,row:i}))]})}function mr(e){let t=new Map;for(let n of e)for(let s of Object.keys(n.labels??{}))t.set(s,(t.get(s)??0)+1);return[...t].sort((n,s)=>s[1]-n[1]).slice(0,20).map(([n])=>n)}var Yn=100,Qn=25;function hr({rows:e,columns:t,tools:n,empty:s}){let{found:o,terms:r}=et(e,t,"name"),[i,l]=L(Yn),{clusters:p,lines:d}=T(()=>Ma(o),[o]),u=p.slice(0,Qn);return a`
<section class="list" aria-label="applications by cluster">
<${Qe} columns=${t} rows=${e} hits=${o.length} total=${e.length} noun="applications"
example="name~api cluster=berlin,paris">
${n}<${Ye} name="applications" columns=${t} rows=${o} />
<//>
${o.length===0&&(r.length?a`<${Ze} terms=${r} columns=${t} rows=${e} noun="applications" />`:s)}
${o.length>0&&a`
${p.length>Qn&&a`
<p class="matrix-note muted">The first ${Qn} of ${p.length} clusters; others: <code>cluster=</code>.</p>`}
<div class="matrix-frame" role="region" aria-label="versions by cluster" tabindex="0">
<table class="matrix">
<thead><tr><th scope="col">Application</th>${u.map(m=>a`<th key=${m} scope="col">${m}</th>`)}</tr></thead>
<tbody>
${d.slice(0,i).map(m=>a`
<tr key=${m.key}><th scope="row" title=${m.key}>${m.name} <span class="muted">${m.namespace}</span></th>
${u.map(f=>a`<${Ca} key=${f} row=${m.cells.get(f)} counts=${m.counts} />`)}</tr>`)}
</tbody>
</table>
</div>
${d.length>i&&a`<p class="matrix-note"><button type="button" class="button"
onClick=${()=>l(i+Yn)}>${Math.min(Yn,d.length-i)} more of ${d.length}</button></p>`}`}
</section>`}function Ca({row:e,counts:t}){if(!e)return a`<td><span class="muted" aria-label="not there">–</span></td>`;let n=Math.max(...t.values()),s=[...t].filter(([,i])=>i===n),o=t.size>1&&(s.length>1||e.version!==s[0][0]),r=me(`${E}/applications`,{open:[e.cluster,e.namespace,e.name].join("/")});return a`
<td class=${o?"differs":""}>
<a class="cell-link" href=${r}>${e.version||"no version"}
${e.health&&e.health!=="current"&&a`<${ne} state=${e.health} />`}
${o&&a`<span class="muted">differs</span>`}</a>
</td>`}function Ma(e){let t=[...new Set(e.map(s=>s.cluster))].sort(),n=new Map;for(let s of e){let o=`${s.name} in ${s.namespace}`,r=n.get(o);r||(r={key:o,name:s.name,namespace:s.namespace,cells:new Map,counts:new Map},n.set(o,r)),r.cells.set(s.cluster,s),r.counts.set(s.version,(r.counts.get(s.version)??0)+1)}return{clusters:t,lines:[...n.values()]}}var Ta=/^(?:https?:\/\/|mailto:)[^\s\u0000-\u0020\u007f-\u009f|<>"'\\^`{}]+$/i,Ea=/^data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,]/i;function $r(e){return typeof e=="string"&&e.length<=512&&Ta.test(e)?e:""}function _r(e){return typeof e=="string"&&e.length<=65536&&Ea.test(e)?e:""}var re=k(null);var G=k(""),At=[["f","Fleet",`${E}/fleet`],["p","Problems",`${E}/problems`],["e","Events",`${E}/events`],["a","Applications",`${E}/applications`]],vr=1500,gr=0;document.addEventListener("keydown",e=>{if((e.ctrlKey||e.metaKey)&&!e.altKey&&!e.shiftKey&&e.key.toLowerCase()==="k"){e.preventDefault(),G.value=G.value==="palette"?"":"palette";return}if(e.ctrlKey||e.metaKey||e.altKey||e.defaultPrevented)return;if(e.key==="Escape"){!G.value&&N.value.params.get("open")&&!br(e.target)&&es();return}if(!le.value||G.value||br(e.target))return;let t=e.timeStamp-gr<vr&&At.find(([n])=>n===e.key);if(gr=e.key==="g"?e.timeStamp:-vr,t){e.preventDefault(),D(t[2]);return}switch(e.key){case"/":document.getElementById("filter")?.focus();break;case"?":G.value="help";break;case"j":re.peek()?.move(1);break;case"k":re.peek()?.move(-1);break;default:return}e.preventDefault()});function es(){let e=H({open:null}),t=document.querySelector(".table__row.is-open");D(e),t instanceof HTMLElement&&t.focus({preventScroll:!0})}function br(e){return e instanceof HTMLElement&&(e.isContentEditable||/^(?:TEXTAREA|SELECT)$/.test(e.tagName)||e instanceof HTMLInputElement&&!/^(?:checkbox|radio|button)$/.test(e.type))}function tt({title:e,kind:t,children:n}){let s=K(null),o=N.value.params.get("open");return P(()=>{s.current?.focus({preventScroll:!0})},[o]),Oa(),a`
<aside class="panel" aria-label=${`${t} ${e}`}>
<header class="panel__head">
<div class="panel__title"><span class="muted">${t}</span><h2 tabindex="-1" ref=${s}>${e}</h2></div>
<${he} text=${e} label="name" />
<button type="button" class="icon-button" aria-label="previous (k)" title="previous (k)"
onClick=${()=>re.peek()?.move(-1)}><${x} name="arrowUp" /></button>
<button type="button" class="icon-button" aria-label="next (j)" title="next (j)"
onClick=${()=>re.peek()?.move(1)}><${x} name="arrowDown" /></button>
<button type="button" class="icon-button" aria-label="close (Esc)" title="close (Esc)"
onClick=${es}><${x} name="x" /></button>
</header>
${n}
</aside>`}function Oa(){let[e,t]=L(!1);P(()=>{let n=matchMedia("(max-width: 52rem)"),s=()=>t(n.matches);return s(),n.addEventListener("change",s),()=>n.removeEventListener("change",s)},[]),P(()=>{if(!e)return;let n=document.querySelectorAll(".nav, .footer, .with-panel > :not(.panel), .heading, .tabs");for(let s of n)s.setAttribute("inert","");return()=>{for(let s of n)s.removeAttribute("inert")}},[e])}function yr({row:e}){return a`
<${tt} title=${e.name} kind="Application">
<section class="panel__section">
${e.health&&a`<div><${ne} state=${e.health} /></div>`}
<dl class="facts">
<div><dt>Cluster</dt><dd><a href=${M(e.cluster)}>${e.cluster}</a></dd></div>
<div><dt>Namespace</dt><dd>${e.namespace}</dd></div>
${e.version&&a`<div><dt>Version</dt><dd>${e.version}</dd></div>`}
${e.source&&a`<div><dt>Source</dt><dd>${e.source}</dd></div>`}
${e.images.map(t=>a`
<div key=${t}><dt>Image</dt><dd><code>${t}</code><${he} text=${t} label="image" /></dd></div>`)}
</dl>
</section>
<section class="panel__section"><h3>Workloads</h3>
${!e.workloads.length&&a`<p class="muted">No workload that you may see belongs to it.</p>`}
${e.workloads.map(t=>a`
<div class="event" key=${`${t.kind}/${t.name}`}>
<span class="event__line"><a href=${M(e.cluster,"workloads",{open:[t.kind,e.namespace,t.name].join("/")})}>${t.kind} ${t.name}</a><span>${t.ready}/${t.wanted}</span></span>
${t.health!=="current"&&a`<p><${ne} state=${t.health} /> ${t.reason}</p>`}
</div>`)}
</section>
${e.declarations.map(t=>a`
<${ja} key=${`${t.kind}${t.namespace}${t.name}`} one=${t} />`)}
<//>`}function ja({one:e}){let t=Object.entries(e.links??{}).map(([i,l])=>[$r(i),l]).filter(([i])=>i),n=_r(e.icon),s=[e.repository,e.path].filter(Boolean).join(" "),o=[["Type",e.type],["Version",e.version],["From",s&&a`<code>${s}</code>`],["Wanted",e.wanted],["Applied",e.revision&&a`<code>${e.revision}</code>`],["Target",e.target!==e.namespace&&e.target],["Owners",e.owners?.join(", ")],...Object.entries(e.info??{}),...Object.entries(e.references??{}),["Not checked",e.unknownComponents?.join(", ")]],r=Object.entries(e.stated??{});return a`
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
<a key=${i} href=${i} target="_blank" rel="noopener noreferrer"><${x} name="externalLink" size=${14} />${l||i}</a>`)}</div>`}
</section>`}var Na=640,La=100,nt=10,kr={comfortable:40,compact:32,narrow:64};function sn({label:e,columns:t,items:n,sort:s,link:o,rowTitle:r,narrow:i,openKey:l,query:p}){let d=K(null),u=Ha(d),m=u<Na,f=m?kr.narrow:kr[ye.value]??40,[c,h,g]=Ba(n,p),[_,S]=Ua(d,c.length,f),[b,C]=L(""),A=K(-1),R=t.filter($=>!$.isHidden&&($.least??0)<=u),ie=R.map($=>$.width).join(" "),v=Math.max(0,c.findIndex($=>$.key===(l||b)));function y($){let j=c[$];j&&(wr(d.current,$,f),A.current=$,C(j.key),Z(se=>se+1))}let[,Z]=L(0);pt(()=>{if(A.current<0)return;let $=d.current?.querySelector(`[data-index="${A.current}"]`);$ instanceof HTMLElement&&(A.current=-1,$.focus({preventScroll:!0}))});function z($){if(l){let se=c.findIndex(Yr=>Yr.key===l)+$;for(;c[se]&&!("row"in c[se]);)se+=$;let ue=c[se];if(!ue||!("row"in ue))return;wr(d.current,se,f),D(o(ue.row),{replace:!0})}else{let j=d.current?.contains(document.activeElement);y(j?Math.min(c.length-1,Math.max(0,v+$)):v)}}P(()=>{let $={move:z,objects:()=>n.flatMap(j=>"row"in j?[{...r(j.row),href:o(j.row)}]:[])};return re.value=$,()=>{re.peek()===$&&(re.value=null)}});function $e($){if($.ctrlKey||$.metaKey||$.altKey)return;let j=Math.max(1,Math.floor(innerHeight/f)-3),ue={ArrowDown:1,ArrowUp:-1,PageDown:j,PageUp:-j,Home:-c.length,End:c.length}[$.key]??(le.value?{j:1,k:-1}[$.key]:0);ue?($.preventDefault(),$.stopPropagation(),l?z(ue):y(Math.min(c.length-1,Math.max(0,v+ue)))):$.key==="Enter"&&$.target instanceof HTMLElement&&$.target.role==="row"&&$.target.querySelector("a")?.click()}return a`
<div class="table-frame">
${h>0&&a`
<button type="button" class="newer" onClick=${g.release}>${h} newer, show</button>`}
<div class=${de("table",m&&"table--narrow")} role="grid" aria-label=${e}
aria-rowcount=${c.length+1} aria-colcount=${m?1:R.length}
style=${{"--columns":m?"1fr":ie,"--row":`${f}px`}}>
<div class="table__head" role="rowgroup">
<div class="table__row table__row--head" role="row" aria-rowindex="1">
${m?a`<div role="columnheader" class="cell"><${Ia} columns=${t} sort=${s} /></div>`:R.map($=>a`<${Fa} key=${$.id} column=${$} sort=${s} />`)}
</div>
</div>
<div class="table__body" role="rowgroup" ref=${d} onKeyDown=${$e} ...${g.events}
style=${{height:`${c.length*f}px`,paddingTop:`${_*f}px`}}>
${c.slice(_,S).map(($,j)=>{let se=_+j,ue=se===v;return"row"in $?a`<${ts} key=${$.key} item=${$} row=${$.row} isGone=${$.isGone} index=${se} columns=${R}
tracks=${ie} isNarrow=${m} narrow=${i} isActive=${ue} isOpen=${$.key===l}
href=${o($.row)} onFocus=${C} />`:a`<${Ra} key=${$.key} item=${$} index=${se} span=${R.length} isActive=${ue}
onFocus=${C} />`})}
</div>
</div>
</div>`}var ts=class extends _e{shouldComponentUpdate(t){let n=this.props;return t.row!==n.row||t.isActive!==n.isActive||t.isOpen!==n.isOpen||t.index!==n.index||t.tracks!==n.tracks||t.isNarrow!==n.isNarrow||t.isGone!==n.isGone||t.href!==n.href}render({item:t,row:n,index:s,columns:o,isNarrow:r,narrow:i,isActive:l,isOpen:p,isGone:d,href:u,onFocus:m}){let f=l?0:-1;return a`
<div class=${de("table__row",p&&"is-open",d&&"is-gone")} role="row" tabindex=${f}
aria-rowindex=${s+2} aria-selected=${p} data-index=${s} onFocusIn=${()=>m(t.key)}>
${r?a`<div class="cell cell--narrow" role="gridcell">${i(n,f,u)}</div>`:o.map(c=>a`
<${Pa} key=${c.id} column=${c} row=${n} tab=${f} href=${c.isMain?u:""} />`)}
</div>`}};function Pa({column:e,row:t,tab:n,href:s}){let o=e.text(t),r=K(o),i=K(0);if(r.current!==o){let p=r.current==="";r.current=o,p||(i.current=i.current===1?2:1)}let l=e.cell?e.cell(t,n):o;return a`
<div class=${de("cell",e.align==="end"&&"cell--end")} role="gridcell"
data-tint=${i.current||null}>
${s?a`<a class="row-link" href=${s} tabindex="-1">${l}</a>`:l}
</div>`}function Ra({item:e,index:t,span:n,isActive:s,onFocus:o}){return a`
<div class="table__row table__row--group" role="row" aria-rowindex=${t+2} tabindex=${s?0:-1}
data-index=${t} onFocusIn=${()=>o(e.key)}>
<div class="cell" role="gridcell" aria-colspan=${n}>
<strong>${e.title}</strong> <span class="muted">${e.count}</span>${e.detail}
</div>
</div>`}function Fa({column:e,sort:t}){let n=t?.column.id===e.id?t.direction:0,s=n===1?"ascending":n===-1?"descending":null;return a`
<div class=${de("cell",e.align==="end"&&"cell--end")} role="columnheader" aria-sort=${s}>
<button type="button" class="sort-button" onClick=${()=>D(H({sort:Da(e,n)}))}>
${e.title}${n!==0&&a`<${x} name=${n===1?"arrowUp":"arrowDown"} size=${12} />`}
</button>
</div>`}function Da(e,t){let n=e.largestFirst?-1:1,s=t===0?n:t===n?-n:0;return s===0?null:`${s<0?"-":""}${e.id}`}function Ia({columns:e,sort:t}){let n=t?`${t.direction<0?"-":""}${t.column.id}`:"";return a`
<label class="sort-menu">Sorted by${" "}
<select value=${n} onChange=${o=>D(H({sort:o.target.value}))}>
<option value="">worst first</option>
${e.flatMap(o=>[o.id,`-${o.id}`].map(r=>a`
<option key=${r} value=${r}>${o.title.toLowerCase()||o.id} ${r[0]==="-"?"↓":"↑"}</option>`))}
</select>
</label>`}function Ba(e,t){let[n,s]=L(!1),o=K({query:t,items:e}),r=K({pointer:!1,focus:!1});function i(){s(r.current.pointer||r.current.focus)}let l={events:{onPointerEnter:u=>{u.pointerType==="mouse"&&(r.current.pointer=!0,i())},onPointerLeave:()=>{r.current.pointer=!1,i()},onFocusIn:u=>{r.current.focus=u.target instanceof Element&&u.target.matches(":focus-visible"),i()},onFocusOut:u=>{u.relatedTarget instanceof Node&&u.currentTarget.contains(u.relatedTarget)||(r.current.focus=!1,i())}},release:()=>{o.current={query:t,items:e},s(!1),setTimeout(i)}};if(!n||o.current.query!==t||!o.current.items.length)return o.current={query:t,items:e},[e,0,l];let p=new Map(e.map(u=>[u.key,u]));return[o.current.items.map(u=>{let m=p.get(u.key);return m?(p.delete(u.key),m):"row"in u?{...u,isGone:!0}:u}),p.size,l]}function Ua(e,t,n){let[s,o]=L([0,40]);return pt(()=>{function i(){if(!e.current)return;let l=e.current.getBoundingClientRect().top,p=Math.max(0,Math.floor(-l/n/nt)*nt-nt),d=Math.ceil((innerHeight-l)/n/nt)*nt+nt;o(u=>u[0]===p&&u[1]===d?u:[p,d])}return i(),addEventListener("scroll",i,{passive:!0}),addEventListener("resize",i),()=>{removeEventListener("scroll",i),removeEventListener("resize",i)}},[t,n]),t<=La?[0,t]:[Math.min(s[0],Math.max(0,t-1)),Math.min(t,s[1])]}function Ha(e){let[t,n]=L(()=>Math.min(innerWidth,4e3));return pt(()=>{if(!e.current)return;let s=new ResizeObserver(([o])=>n(Math.round(o.contentRect.width)));return s.observe(e.current),n(e.current.clientWidth),()=>s.disconnect()},[]),t}function wr(e,t,n){if(!e)return;let s=e.getBoundingClientRect().top+t*n,o=110,r=innerHeight-n-70;s<o?scrollBy(0,s-o):s>r&&scrollBy(0,s-r),N.peek()}var Sr={bad:2,progress:1,ok:0},as=e=>e.state||e.health||"",ns={id:"state",title:"State",width:"minmax(7.5rem, 11.5rem)",text:as,largestFirst:!0,value:e=>Sr[be(e.health||e.state||"")],cell:e=>a`<${ne} state=${as(e)} health=${e.health} />`},on={id:"name",title:"Name",width:"minmax(9rem, 2fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>a`<${Y} text=${e.name} />`},xr={id:"kind",title:"Kind",width:"7rem",least:820,text:e=>e.kind,value:e=>e.kind},rn={id:"namespace",title:"Namespace",width:"minmax(6rem, 1fr)",text:e=>e.namespace,value:e=>e.namespace},ss={id:"reason",title:"Reason",width:"minmax(8rem, 2fr)",least:980,text:e=>e.reason??"",value:e=>e.reason,cell:e=>a`<span class="muted" title=${e.reason??""}>${e.reason??""}</span>`},os={id:"age",title:"Age",width:"5rem",align:"end",least:700,noFilter:!0,text:e=>e.created??"",value:e=>-e.createdAt,cell:e=>a`<${W} at=${e.createdAt} />`},rs={id:"health",title:"Health",width:"0",isHidden:!0,noFilter:!0,text:e=>e.health??"",value:e=>e.health},st={id:"cluster",title:"Cluster",width:"minmax(7rem, 1fr)",text:e=>e.cluster,value:e=>e.cluster,cell:(e,t)=>a`<a tabindex=${t} href=${M(e.cluster)}>${e.cluster}</a>`},ot={id:"trouble",title:"",width:"0",text:()=>"",isHidden:!0,value:e=>Sr[be(e.health||e.state||"")]*1e12+(e.sinceAt||e.createdAt||0)};function an(e){return e.wanted===void 0?"":`${e.ready}/${e.wanted}`}function is(e){let n=(e.images?.[e.images.length-1]??"").split("@")[0].split("/").pop()??"";return n.includes(":")?n.slice(n.indexOf(":")+1):""}var Wa=(e,t)=>e?`${e}${t}`:"";function ls(e){let t=/^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$/.exec(String(e??"")),n={m:.001,Ki:2**10,Mi:2**20,Gi:2**30,Ti:2**40,k:1e3,M:1e6,G:1e9,T:1e12};return t?Number(t[1])*(n[t[2]]??1):null}function qa(e){let t=ls(e);return t===null?"":`${(t/2**30).toLocaleString("en",{maximumFractionDigits:1})} GiB`}var Be={workloads:[ns,on,xr,rn,{id:"ready",title:"Ready",width:"4.5rem",align:"end",text:an,noFilter:!0,value:e=>e.wanted?e.ready/e.wanted:null},{id:"version",title:"Version",width:"7rem",least:820,text:is,value:is,cell:e=>a`<span title=${(e.images??[]).join(`
`)}>${is(e)}</span>`},ss,os,rs,{id:"image",title:"Image",width:"0",isHidden:!0,text:e=>(e.images??[]).join(" "),value:e=>e.images?.[0]}],nodes:[ns,on,{id:"version",title:"Version",width:"7rem",text:e=>e.version??"",value:e=>e.version},{id:"cpu",title:"CPU",width:"4rem",align:"end",noFilter:!0,text:e=>e.capacity?.cpu??"",value:e=>ls(e.capacity?.cpu),largestFirst:!0},{id:"memory",title:"Memory",width:"6rem",align:"end",noFilter:!0,text:e=>qa(e.capacity?.memory),value:e=>ls(e.capacity?.memory),largestFirst:!0},{...ss,text:e=>[e.reason,...e.pressures??[]].filter(Boolean).join(", "),cell:e=>a`<span class="muted">${[e.reason,...e.pressures??[]].filter(Boolean).join(", ")}</span>`},{id:"os",title:"System",width:"minmax(6rem, 1fr)",least:1100,text:e=>e.os??"",value:e=>e.os},os,rs],services:[on,rn,{id:"type",title:"Type",width:"8rem",text:e=>e.type??"",value:e=>e.type},{id:"ports",title:"Ports",width:"minmax(4rem, 8rem)",text:e=>(e.ports??[]).join(", "),value:e=>e.ports?.[0],noFilter:!0},{id:"addresses",title:"Addresses",width:"minmax(8rem, 2fr)",least:760,text:e=>(e.addresses??[]).join(", "),value:e=>e.addresses?.[0]},os],problems:[ns,on,xr,rn,ss,{id:"restarts",title:"Restarts",width:"5.5rem",align:"end",least:1100,noFilter:!0,largestFirst:!0,text:e=>Wa(e.restarts,""),value:e=>e.restarts},{id:"since",title:"Since",width:"5rem",align:"end",noFilter:!0,text:e=>`${e.since??""}`,value:e=>-e.sinceAt,cell:e=>a`<${W} at=${e.sinceAt} />`},rs,{id:"node",title:"Node",width:"0",isHidden:!0,text:e=>e.node??"",value:e=>e.node},{id:"owner",title:"Owner",width:"0",isHidden:!0,text:e=>e.owner??"",value:e=>e.owner}],events:[{id:"last",title:"Last",width:"4.75rem",noFilter:!0,text:e=>`${e.lastAt}`,value:e=>-e.lastAt,cell:e=>a`<${W} at=${e.lastAt} />`},{id:"reason",title:"Reason",width:"minmax(8rem, 1fr)",text:e=>e.reason??"",value:e=>e.reason,isMain:!0},{id:"object",title:"Object",width:"minmax(9rem, 1.6fr)",text:e=>e.object??"",value:e=>e.object,cell:e=>a`<${Y} text=${e.object??""} />`},rn,{id:"count",title:"Count",width:"7.5rem",align:"end",noFilter:!0,largestFirst:!0,text:e=>`${e.count}`,value:e=>e.count,cell:e=>a`${e.count}${e.lastAt-e.firstAt>=60&&a` <span class="muted">in ${Q(e.lastAt-e.firstAt)}</span>`}`},{id:"message",title:"Message",width:"minmax(10rem, 2.6fr)",least:900,text:e=>e.message??"",value:e=>e.message,cell:e=>a`<span class="muted" title=${e.message}>${e.message}</span>`}]};function Ar(e,t,n=!1){let s=[n&&e.cluster,e.namespace,e.kind!=="Event"&&e.kind].filter(Boolean).join(" · ");return e.kind==="Event"?a`
<span class="narrow__main">
<a class="row-link" href=${t} tabindex="-1"><${Y} text=${e.object??""} /></a>
<span class="muted"><${W} at=${e.lastAt} /></span>
</span>
<span class="narrow__more"><span class="muted">${e.reason} ×${e.count} · ${s}</span></span>`:a`
<span class="narrow__main">
<a class="row-link" href=${t} tabindex="-1"><${Y} text=${e.name} /></a>
<${ne} state=${as(e)} health=${e.health} />
</span>
<span class="narrow__more">
<span class="muted">${s}${e.reason?` · ${e.reason}`:""}</span>
<span class="muted">${e.sinceAt?a`<${W} at=${e.sinceAt} />`:an(e)}</span>
</span>`}function Ue(e,t=!1){let n=e.kind==="Event"?[e.objectKind,e.namespace,e.objectName,e.reason]:[e.kind,e.namespace,e.name];return[...t?[e.cluster]:[],...n].join("/")}function je({noun:e,columns:t,rows:n,order:s,hidden:o,hasCluster:r=!1,panel:i,empty:l,example:p,nameOf:d,narrow:u,tools:m}){let{params:f}=N.value,c=f.get("open")??"",h=f.get("ns")??"",g=d??(y=>Ue(y,r)),_=T(()=>{if(!h)return n;let y=new Set(h.split(","));return n.filter(Z=>y.has(Z.namespace))},[n,h]),{found:S,items:b,sort:C,terms:A,query:R}=et(_,t,s,o),ie=c?n.find(y=>g(y)===c):null,v=a`
<section class="list" aria-label=${e}>
<${Qe} columns=${t} rows=${_} hits=${S.length} total=${_.length} noun=${e}
example=${p}>
${m}
<${Ka} rows=${n} chosen=${h} />
<${Ye} name=${e} columns=${t} rows=${S} />
<//>
${S.length>0&&a`
<${sn} label=${e} columns=${t} items=${b} sort=${C} query=${R}
link=${y=>H({open:g(y)})} openKey=${ie?.key??""}
rowTitle=${y=>({title:y.name||y.object,detail:[y.kind,y.namespace,r&&y.cluster].filter(Boolean).join(" ")})}
narrow=${u??((y,Z,z)=>Ar(y,z,r))} />`}
${!S.length&&(A.length||h&&n.length?a`<${Ze} terms=${A} columns=${t} rows=${_} noun=${e} />`:l)}
</section>`;return c?a`
<div class="with-panel">
${v}
${ie?i(ie):a`
<${tt} title=${c.split("/").filter(Boolean).pop()??""} kind="">
<section class="panel__section"><p>This object is gone, or you may not see it.</p></section><//>`}
</div>`:v}function Ka({rows:e,chosen:t}){let n=T(()=>{let i=new Map;for(let l of e)l.namespace&&i.set(l.namespace,(i.get(l.namespace)??0)+1);return[...i].sort(([l],[p])=>l<p?-1:1)},[e]),s=new Set(t.split(",").filter(Boolean));if(n.length<2&&!s.size)return null;function o(i,l){let p=new Set(s);l?p.add(i):p.delete(i),D(H({ns:[...p].sort().join(",")||null}))}let r=s.size===0?"All namespaces":s.size===1?[...s][0]:`${s.size} namespaces`;return a`
<details class="namespaces" onKeyDown=${i=>{i.key!=="Escape"||!i.currentTarget.open||(i.stopPropagation(),i.currentTarget.open=!1,i.currentTarget.querySelector("summary").focus())}} onFocusOut=${i=>{i.relatedTarget&&!i.currentTarget.contains(i.relatedTarget)&&(i.currentTarget.open=!1)}}>
<summary class="button" aria-label=${`namespaces: ${r}`}>
<span class="namespaces__label">${r}</span><${x} name="chevronDown" size=${14} /></summary>
<div class="namespaces__list" role="group" aria-label="namespaces">
${s.size>0&&a`<button type="button" class="button button--quiet" onClick=${()=>D(H({ns:null}))}>
All namespaces</button>`}
${n.map(([i,l])=>a`
<label key=${i}><input type="checkbox" checked=${s.has(i)}
onChange=${p=>o(i,p.target.checked)} />${i}
<span class="muted">${l}</span></label>`)}
</div>
</details>`}var Va={failed:3,"in progress":2,terminating:1,current:0},cs=e=>e.workloads.reduce((t,n)=>[t[0]+n.ready,t[1]+n.wanted],[0,0]),ln=[{id:"health",title:"Health",width:"7.5rem",text:e=>e.health||"unknown",largestFirst:!0,value:e=>Va[e.health]??-1,cell:e=>e.health?a`<${ne} state=${e.health} />`:a`<span class="muted">no workloads</span>`},{id:"name",title:"Name",width:"minmax(9rem, 2fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>a`<${Y} text=${e.name} />`},{id:"namespace",title:"Namespace",width:"minmax(6rem, 1fr)",text:e=>e.namespace,value:e=>e.namespace},{id:"version",title:"Version",width:"minmax(5rem, 1fr)",text:e=>e.version,value:e=>e.version},{id:"source",title:"Source",width:"6rem",least:820,text:e=>e.source,value:e=>e.source},{id:"pods",title:"Pods",width:"5rem",align:"end",noFilter:!0,least:700,text:e=>cs(e).join("/"),value:e=>cs(e)[1],largestFirst:!0},{id:"image",title:"Images",width:"minmax(8rem, 2fr)",least:1100,text:e=>e.images.join(" "),value:e=>e.images[0],cell:e=>a`<span class="muted" title=${e.images.join(`
`)}>${e.images[0]??""}</span>`}],Cr=[ln[0],ln[1],st,...ln.slice(2)];function cn({clusters:e}){let t=e.join(","),n=e.length!==1||t==="*",s=bo(`applications ${t}`,c=>fe("/api/v1/applications",{clusters:t},c)),{data:o,error:r,since:i,retryAt:l}=s.state.value,p=T(()=>(o?.items??[]).map(c=>({...c,key:[c.cluster,c.namespace,c.name,c.declarations.length>0].join("/"),labels:{source:c.source}})),[o]),d=n&&N.value.params.get("view")==="matrix",u=c=>[...n?[c.cluster]:[],c.namespace,c.name].join("/");if(!o&&r)return a`<${oe} what="applications" status=${r.status} message=${r.message} since=${i}
retryAt=${l} retry=${()=>s.reload()} />`;if(!o)return a`<${ee} label="loading applications" />`;let m=a`
<${J} icon="boxes" title="No applications">
<p>Workloads with labels such as <code>app.kubernetes.io/name</code>, and objects of app.k8s.io, Argo CD and Flux,
appear here.</p>
<//>`,f=n&&a`
<span class="segmented" role="group" aria-label="view">
<a href=${H({view:null})} aria-current=${d?null:"true"} aria-label="list" title="list">
<${x} name="list" /></a>
<a href=${H({view:"matrix",open:null})} aria-current=${d?"true":null} aria-label="matrix"
title="matrix: a column for each cluster"><${x} name="table" /></a>
</span>`;return a`
<${Xe} incomplete=${o.clusters.incomplete} missingKas=${o.missingKas} isCut=${o.cut} />
${r&&a`<div class="notice notice--warning">The rows are old: ${r.message}</div>`}
${d?a`<${hr} rows=${p} columns=${Cr} tools=${f} empty=${m} />`:a`<${je} noun="applications" example="health!=current" columns=${n?Cr:ln} rows=${p}
order="-health" hasCluster=${n} nameOf=${u} tools=${f} empty=${m} narrow=${Ga(n)}
panel=${c=>a`<${yr} row=${c} />`} />`}`}var Ga=e=>(t,n,s)=>a`
<span class="narrow__main">
<a class="row-link" href=${s} tabindex="-1"><${Y} text=${t.name} /></a>
${t.health&&a`<${ne} state=${t.health} />`}
</span>
<span class="narrow__more"><span class="muted">${[e&&t.cluster,t.namespace,t.version].filter(Boolean).join(" · ")}</span><span class="muted">${cs(t).join("/")}</span></span>`;function Mr(){return a`
<${X} title="Applications"><p class="muted">Workloads that belong together, and the version of each.</p><//>
<${cn} clusters=${ze()} />`}var Tr=new WeakMap;function us(e,t){let n=Tr.get(e);return n||(n={...e,key:t??[e.cluster,e.group,e.kind,e.namespace,e.name].join("/"),createdAt:Qt(e.created),sinceAt:Qt(e.since),lastAt:Qt(e.last)},Tr.set(e,n)),n}function Ae(e){let t=[],n=[];for(let[s,o]of e)s.startsWith("cluster/")?n.push(o):typeof o=="object"&&o!==null&&t.push(us(o,s));return{objects:t,incomplete:n,isCut:e.get("more")===!0}}var Er=new WeakMap;function Ne(e){let t=new Map;for(let n of e){let s=[n.cluster,n.namespace,n.object,n.reason].join("/"),o=t.get(s);o?o.push(n):t.set(s,[n])}return[...t].map(([n,s])=>{s.sort((d,u)=>u.lastAt-d.lastAt);let o=s[0],r=Er.get(o);if(r&&r.members.length===s.length&&s.every((d,u)=>r.members[u]===d))return r;let[i="",l=""]=String(o.object??"").split("/"),p={...o,key:n,members:s,objectKind:i,objectName:l,count:s.reduce((d,u)=>d+(u.count??1),0),firstAt:s[s.length-1].lastAt};return Er.set(o,p),p})}var za=[["bad","failed"],["progress","in progress"],["ok","current"]],Ja=40;function un({shares:e,name:t,isOld:n=!1,tab:s,linkTo:o}){return e?e.total?a`
<span class=${`bar ${n?"bar--old":""}`}>
${za.filter(([r])=>e[r]).map(([r,i])=>a`
<a class=${`bar__share bar__share--${r}`} key=${r} href=${o(i)} tabindex=${s}
style=${{flexGrow:Math.max(Ja,Math.round(1e3*e[r]/e.total))}}
aria-label=${`${t}: ${e[r]} of ${e.total} ${i}`}
title=${`${e[r]} of ${e.total} ${i}`}></a>`)}
</span>`:a`<span class="bar bar--empty" title="no workloads"></span>`:a`<span class="muted">–</span>`}function rt({labels:e,most:t=99,tab:n,inFleet:s=!1}){let o=Object.entries(e);if(!o.length)return null;let r=o.slice(0,t),i=o.length-r.length;return a`
<span class="labels">
${r.map(([l,p])=>a`
<a class="chip" key=${l} tabindex=${n}
href=${Za(`${l}=${Gn(p)}`,s)} title=${`${l}=${p}`}>
<span class="chip__key">${Xa(l)}</span>${p||'""'}
</a>`)}
${i>0&&a`<span class="chip chip--more" title=${o.slice(t).map(([l,p])=>`${l}=${p}`).join(`
`)}>+${i}</span>`}
</span>`}function Za(e,t){if(t)return me(`${E}/fleet`,{q:e});let n=N.value.params.get("q")??"",s=n.split(" ").filter(Boolean);return H({q:s.includes(e)?n:[...s,e].join(" "),open:null})}function Xa(e){return e.slice(e.lastIndexOf("/")+1)}var Ya=[["nodes","nodes"],["deployments","workloads"],["statefulsets","workloads"],["daemonsets","workloads"],["jobs","workloads"],["cronjobs","workloads"],["pods","problems"],["services","services"],["namespaces","problems"]],Qa={nodes:"Node",deployments:"Deployment",statefulsets:"StatefulSet",daemonsets:"DaemonSet",jobs:"Job",cronjobs:"CronJob",pods:"Pod",services:"Service",namespaces:"Namespace"},Or=8;function jr({name:e,cluster:t}){return a`
<div class="cards">
<div class="cards__column">
<${el} name=${e} /><${nl} name=${e} />
</div>
<div class="cards__column">
<${tl} name=${e} cluster=${t} /><${sl} name=${e} cluster=${t} />
</div>
</div>`}function pn({title:e,href:t,more:n,children:s}){return a`
<section class="card" aria-label=${e}>
<header class="card__head"><h2>${e}</h2>${t&&a`<a href=${t}>${n??"all"}</a>`}</header>
${s}
</section>`}function ps(e,t){let n=we({channel:"ClusterChannel",cluster:e,view:t}),s=n.version.value;return{objects:T(()=>Ae(n.rows).objects,[n,s]),isLoading:n.state.value==="loading"}}function el({name:e}){let{objects:t,isLoading:n}=ps(e,"problems"),s=nn(t,{column:ot,direction:-1}).slice(0,Or);return a`
<${pn} title="Problems" href=${M(e,"problems")} more=${t.length?`all ${t.length}`:""}>
${n&&!t.length&&a`<${ee} rows=${3} />`}
${!n&&!t.length&&a`<div class="card__body muted">Each object has reached the state of its specification.</div>`}
<ul class="lines">${s.map(o=>a`
<li key=${o.key}><a class="line" href=${M(e,"problems",{open:Ue(o)})}>
<span class="line__what"><${Y} text=${o.name} /></span>
<span class=${be(o.health||o.state)==="bad"?"number--bad":"muted"}>${o.state}</span>
<span class="line__why">${o.kind}${o.namespace&&` in ${o.namespace}`}, <${W} at=${o.sinceAt} />${o.reason?` · ${o.reason}`:""}</span></a></li>`)}
</ul>
<//>`}function tl({name:e,cluster:t}){let n=t?.summary,s=Ya.filter(([o])=>n?.[o]);return a`
<${pn} title="Objects">
<div class="card__body">
${s.length?a`
<dl class="kinds">${s.map(([o,r])=>{let{total:i,states:l}=n[o],p={ok:0,progress:0,bad:0,total:i};for(let[f,c]of Object.entries(l??{}))p[be(f)]+=Number(c);let d=`kind=${Qa[o]}`,u=r===o,m=Object.entries(l??{}).map(([f,c])=>`${c} ${f}`).join(", ");return a`
<div key=${o} title=${m}><dt><a href=${M(e,r,u?{}:{q:d})}>${o}</a></dt>
<dd>${i}</dd>
<dd>${i>0&&a`<${un} shares=${p} name=${o} isOld=${t?.state!=="live"}
linkTo=${f=>M(e,r,{q:[!u&&d,`health=${f.includes(" ")?`"${f}"`:f}`].filter(Boolean).join(" ")})} />`}</dd></div>`})}</dl>`:a`<p class="muted">The numbers of objects are visible to users who may list them in all namespaces.</p>
<${Ie} text="kubectl auth can-i list pods --all-namespaces" />`}
</div>
<//>`}function nl({name:e}){let{objects:t,isLoading:n}=ps(e,"events"),s=Ne(t).sort((o,r)=>r.lastAt-o.lastAt).slice(0,Or);return a`
<${pn} title="Warnings" href=${M(e,"events")} more=${s.length?"all":""}>
${n&&!t.length&&a`<${ee} rows=${3} />`}
${!n&&!t.length&&a`<div class="card__body muted">None within the last hour.</div>`}
<ul class="lines">${s.map(o=>a`
<li key=${o.key}><a class="line" href=${M(e,"events",{open:Ue(o)})}>
<span class="line__what"><${Y} text=${o.object??""} /></span>
<span class="muted">${o.count>1&&`×${o.count} · `}<${W} at=${o.lastAt} /></span>
<span class="line__why">${o.reason}: ${o.message}</span></a></li>`)}
</ul>
<//>`}function sl({name:e,cluster:t}){let{objects:n}=ps(e,"kinds"),s=n.filter(o=>o.state!=="synced"&&!/has no kind/.test(o.reason??""));return a`
<${pn} title="About">
<div class="card__body">
<dl class="facts">
<div><dt>Data</dt><dd>${t?.state==="live"?"now":t?.lastSeen?a`<${W} at=${t.lastSeen} suffix=" ago" />`:"–"}</dd></div>
${t?.kubernetesVersion&&a`<div><dt>Kubernetes</dt><dd>${t.kubernetesVersion}</dd></div>`}
${t?.agentkVersion&&a`<div><dt>agentk</dt><dd>${t.agentkVersion}</dd></div>`}
${t&&Object.keys(t.labels).length>0&&a`
<div><dt>Labels</dt><dd><${rt} labels=${t.labels} inFleet=${!0} /></dd></div>`}
${s.map(o=>a`
<div key=${o.key}><dt>${o.kind}</dt><dd>${o.state==="count_only"?"only counted":o.state}${o.reason?`: ${o.reason}`:""}</dd></div>`)}
</dl>
<${Ie} text=${`kasctl problems --clusters ${e}`} />
</div>
<//>`}var ds=new Set(["Deployment","StatefulSet","DaemonSet","Job","CronJob"]);function it({row:e,tab:t}){let n=e.kind==="Event",s=n?e.objectKind:e.kind,o=n?e.objectName:e.name;return a`
<${tt} title=${o} kind=${s} link=${t?"":M(e.cluster)}>
<section class="panel__section">
${n?a`<strong>${e.reason}</strong>`:a`<div><${ne} state=${e.state||e.health} health=${e.health} /></div>`}
${(n?e.message:e.reason)&&a`
<p class=${e.health==="failed"?"message message--bad":"message"}>${n?e.message:e.reason}</p>`}
<${ol} row=${e} isEvent=${n} />
</section>
${e.labels&&Object.keys(e.labels).length>0&&a`
<section class="panel__section"><h3>Labels</h3><${rt} labels=${e.labels} /></section>`}
${ds.has(s)&&a`<${rl} row=${e} kind=${s} name=${o} />`}
<${il} cluster=${e.cluster} namespace=${e.namespace} kind=${s} name=${o} />
<section class="panel__section"><h3>kubectl</h3>
${al(s,e.namespace,o).map(r=>a`<${Ie} key=${r} text=${r} />`)}
</section>
<//>`}function ol({row:e,isEvent:t}){let n=[["Cluster",a`<a href=${M(e.cluster)}>${e.cluster}</a>`],["Namespace",e.namespace],["Since",e.sinceAt>0&&a`<${W} at=${e.sinceAt} suffix=" ago" /><span class="muted"><${en}
at=${e.sinceAt} /></span>`],["Last",e.lastAt>0&&a`<${W} at=${e.lastAt} suffix=" ago" /><span class="muted"><${en}
at=${e.lastAt} /></span>`],["Count",t&&e.count],["Ready",an(e)],["Schedule",e.schedule&&a`<code>${e.schedule}</code>${e.suspended&&a`<span>suspended</span>`}`],["Restarts",e.restarts>0&&e.restarts],["Owner",e.owner],["Node",e.node],["Type",e.type],["Ports",e.ports?.join(", ")],["Version",e.version],["System",[e.os,e.architecture].filter(Boolean).join(", ")],["Capacity",e.capacity&&Object.entries(e.capacity).map(([s,o])=>`${s} ${o}`).join(", ")],["Pressure",e.pressures?.join(", ")],["Created",e.createdAt>0&&a`<${W} at=${e.createdAt} suffix=" ago" /><span class="muted"><${en}
at=${e.createdAt} /></span>`]];return a`
<dl class="facts">
${n.filter(([,s])=>s).map(([s,o])=>a`
<div key=${s}><dt>${s}</dt><dd>${o}</dd></div>`)}
${[...e.images??[]].map(s=>a`
<div key=${s}><dt>Image</dt><dd><code>${s}</code><${he} text=${s} label="image" /></dd></div>`)}
${[...e.addresses??[]].map(s=>a`
<div key=${s}><dt>Address</dt><dd><code>${s}</code><${he} text=${s} label="address" /></dd></div>`)}
${e.selector&&a`<div><dt>Selector</dt><dd><code>${Object.entries(e.selector).map(([s,o])=>`${s}=${o}`).join(",")}</code></dd></div>`}
</dl>`}function rl({row:e,kind:t,name:n}){let s=we({channel:"ClusterChannel",cluster:e.cluster,view:"problems"});s.version.value;let o=t==="Deployment"?`ReplicaSet/${n}-`:t==="CronJob"?`Job/${n}-`:`${t}/${n}`,{objects:r}=Ae(s.rows),i=r.filter(l=>l.kind==="Pod"&&l.namespace===e.namespace&&(o.endsWith("-")?l.owner?.startsWith(o):l.owner===o));return i.length?a`
<section class="panel__section"><h3>Pods with problems (${i.length})</h3>
${i.slice(0,10).map(l=>a`
<div class="event" key=${l.key}>
<span class="event__line"><a href=${M(l.cluster,"problems",{open:Ue(l)})}>${l.name}</a>
<span class="muted"><${W} at=${l.sinceAt} /></span></span>
<p>${[l.state,l.reason,l.restarts&&`${l.restarts} restarts`].filter(Boolean).join(" · ")}</p>
</div>`)}
</section>`:null}function il({cluster:e,namespace:t,kind:n,name:s}){let o=we({channel:"EventsChannel",clusters:[e],namespace:t});o.version.value;let{objects:r}=Ae(o.rows),i=`${n}/${s}`,l=Ne(r.filter(p=>{let d=String(p.object??"");return d===i||ds.has(n)&&d.slice(d.indexOf("/")+1).startsWith(`${s}-`)&&/^(?:Pod|ReplicaSet|Job)\//.test(d)})).sort((p,d)=>d.lastAt-p.lastAt);return a`
<section class="panel__section"><h3>Warnings</h3>
${o.state.value==="refused"&&a`<p class="muted">not available: ${o.reason.value}</p>`}
${o.state.value==="live"&&!l.length&&a`<p class="muted">none in the last hour</p>`}
${l.slice(0,20).map(p=>a`
<div class="event" key=${p.key}>
<span class="event__line"><span><strong>${p.reason}</strong>${p.count>1&&a` <span class="muted">×${p.count}</span>`}</span><span class="muted"><${W} at=${p.lastAt} /></span></span>
<p>${p.object!==i&&a`${p.object}: `}${p.message}</p>
</div>`)}
</section>`}function al(e,t,n){let s=t?` -n ${t}`:"",o=e.toLowerCase(),r=[`kubectl${s} describe ${o} ${n}`];return e==="Pod"?r.push(`kubectl${s} logs ${n} --all-containers --previous`):ds.has(e)&&e!=="CronJob"&&r.push(`kubectl${s} logs ${o}/${n} --since=10m`),r}var fs=[["","Overview",[]],["workloads","Workloads",$t],["nodes","Nodes",["nodes"]],["services","Services",["services"]],["problems","Problems",[]],["events","Events",["events"]],["applications","Applications",[]]],ll={workloads:["No workloads","Deployments, StatefulSets, DaemonSets, Jobs and CronJobs appear here."],nodes:["No nodes","Nodes appear here as soon as they join the cluster."],services:["No Services","Services appear here with their ports and addresses."],problems:["No problems","Each object has reached the state of its specification."],events:["No warnings","The cluster has written no warning within the last hour."]},cl={workloads:"kind=Deployment name~api",nodes:"state!=Ready",services:"type=LoadBalancer",problems:"kind!=Pod",events:"reason=BackOff"};function Nr({name:e,tab:t}){let n=vo.value.get(e),s=!!n;P(()=>{s&&eo(e)},[e,s]);let o=Oe.value.includes(e),r=!n&&(ce().state.value==="loading"||!xe.value.isLoaded);return a`
<${X} title=${e} above=${a`<a class="heading__above" href=${`${E}/fleet`}>Fleet</a>`} actions=${a`
${n&&a`<${xt} state=${n.state} />`}
<${he} text=${e} label="name of the cluster" />
<button type="button" class="icon-button" aria-pressed=${o} aria-label="pin" title=${o?"unpin":"pin"}
onClick=${()=>to(e)}><${x} name="pin" /></button>`} />
<nav class="tabs" aria-label="views of the cluster">
${fs.map(([i,l,p])=>a`
<a key=${i} href=${M(e,i)} aria-current=${i===t?"page":null}>${l}
<${fl} cluster=${n} id=${i} kinds=${p} /></a>`)}
</nav>
${n&&a`<${ml} cluster=${n} />`}
${r?a`<${ee} />`:a`<${ul} key=${t} name=${e} tab=${t} cluster=${n} />`}`}function ul({name:e,tab:t,cluster:n}){return n?.state==="never"?a`
<${J} icon="circleDashed" title="This cluster has never sent data">
<p>Is the module <code>cluster_data</code> enabled in its agentk? This command installs an agentk with it:</p>
<p class="command"><code>kasctl agent install ${e} --context CONTEXT --module cluster_data</code></p>
<//>`:n?.state==="denied"?a`
<${J} icon="ban" title="You have no access to this cluster">
<p>Ask an administrator of kas for access to the agent ${e}. To look at your own access:</p>
<p class="command"><code>kasctl user list</code></p>
<//>`:t?t==="applications"?a`<${cn} clusters=${[e]} />`:Be[t]?a`<${pl} name=${e} tab=${t} cluster=${n} />`:a`<${J} icon="search" title="This view does not exist" />`:a`<${jr} name=${e} cluster=${n} />`}function pl({name:e,tab:t,cluster:n}){let s=we({channel:"ClusterChannel",cluster:e,view:t}),o=s.version.value,{rows:r,isCut:i}=T(()=>{let c=Ae(s.rows);return{rows:t==="events"?Ne(c.objects):c.objects,isCut:c.isCut}},[s,o,t]),l=s.state.value;if(l==="loading"&&!r.length)return a`<${ee} />`;if(l==="refused"&&!r.length)return a`<${oe} what=${t} status=${s.status.value} message=${s.reason.value} since=${s.since.value}
retryAt=${s.retryAt.value} retry=${()=>s.retry()} />`;let p=(fs.find(([c])=>c===t)??fs[0])[2],d=n?.state==="live"?p.filter(c=>!n.summary?.[c]):[],[u,m]=ll[t],f=t==="events"?"last":t==="services"?"name":"-trouble";return a`
${i&&a`<div class="notice notice--warning">The list has the first 5000 rows only.</div>`}
<${je} noun=${t} columns=${Be[t]} rows=${r} order=${f} hidden=${dl}
example=${cl[t]} panel=${c=>a`<${it} row=${c} tab=${t} />`}
empty=${d.length===p.length&&p.length?a`<${pr} cluster=${e} resources=${d} />`:a`<${J} title=${u}><p>${m}</p><//>`} />`}var dl=[ot];function fl({cluster:e,id:t,kinds:n}){let s=t==="problems"?e?.problems:n.length&&t!=="events"?Ve(e?.summary,n)?.total:null;return s?a`<span class="tabs__count">${s}</span>`:null}function ml({cluster:e}){if(e.state!=="late"&&e.state!=="offline")return null;ke.value;let t=e.lastSeen?Q(w()-e.lastSeen):"";return a`
<div class="notice notice--warning"><${x} name=${e.state==="late"?"clock":"cloudOff"} />
<span>${e.state==="late"?"agentk is connected, and sends no data at the moment.":"agentk is not connected."}
${t&&` All rows are the state of ${t} ago.`}</span></div>`}var[hl,$l,_l,...vl]=Be.events,gl=[hl,$l,_l,st,...vl];function Lr(){let e=we({channel:"EventsChannel",clusters:ze()}),t=e.version.value,{rows:n,incomplete:s,isCut:o}=T(()=>{let i=Ae(e.rows);return{...i,rows:Ne(i.objects)}},[e,t]),r=e.state.value;return a`
<${X} title="Events"><p class="muted">Warnings of all clusters, one row for each object and reason.</p><//>
${r==="loading"&&!n.length&&a`<${ee} label="loading events" />`}
${r==="refused"&&!n.length&&a`<${oe} what="events" status=${e.status.value}
message=${e.reason.value} since=${e.since.value} retryAt=${e.retryAt.value} retry=${()=>e.retry()} />`}
${(r==="live"||n.length>0)&&a`
<${Xe} incomplete=${s} isCut=${o} />
<${je} noun="events" example="reason=BackOff" columns=${gl} rows=${n} order="last" hasCluster=${!0}
panel=${i=>a`<${it} row=${i} tab="" />`}
empty=${a`<${J} title="No warnings"><p>No cluster has written a warning within the last hour.</p><//>`} />`}`}var Rr={offline:4,late:3,never:2,denied:1,live:0};function bl(e){let t=(e.workloads?.bad??0)+3*(e.nodes?.bad??0);return(Rr[e.state]??0)*1e9+t*1e4+Math.min(9999,e.problems??0)}var yl=e=>t=>M(e.name,"workloads",{q:`health=${t.includes(" ")?`"${t}"`:t}`});function Ct(e){return e?e.bad?`${e.total-e.bad}/${e.total}`:`${e.total}`:""}function kl(e,t){if(e.problems===null)return a`<span class="muted">–</span>`;if(!e.problems)return a`<span class="muted">0</span>`;let n=!!(e.workloads?.bad||e.nodes?.bad);return a`<a class=${n?"number number--bad":"number"} tabindex=${t}
href=${M(e.name,"problems")}>${e.problems}</a>`}var Fr={id:"worst",title:"",width:"0",text:()=>"",value:bl},at=[{id:"state",title:"State",width:"6.5rem",text:e=>e.state,value:e=>Rr[e.state],cell:e=>a`<${xt} state=${e.state} />`,largestFirst:!0},{id:"name",title:"Name",width:"minmax(9rem, 1.6fr)",text:e=>e.name,value:e=>e.name,isMain:!0,cell:e=>a`<${Y} text=${e.name} />`},{id:"health",title:"Health",width:"9rem",least:760,noFilter:!0,text:e=>e.workloads?`${e.workloads.ok}/${e.workloads.total}`:"",value:e=>e.workloads?.total?e.workloads.bad/e.workloads.total:null,largestFirst:!0,cell:(e,t)=>a`<${un} shares=${e.workloads} name=${`workloads of ${e.name}`}
isOld=${e.state!=="live"} tab=${t} linkTo=${yl(e)} />`},{id:"nodes",title:"Nodes",width:"5rem",align:"end",noFilter:!0,text:e=>Ct(e.nodes),value:e=>e.nodes?.total,largestFirst:!0,cell:(e,t)=>Pr(e.nodes,M(e.name,"nodes"),t)},{id:"workloads",title:"Workloads",width:"6.5rem",align:"end",noFilter:!0,text:e=>Ct(e.workloads),value:e=>e.workloads?.total,largestFirst:!0,cell:(e,t)=>Pr(e.workloads,M(e.name,"workloads"),t)},{id:"problems",title:"Problems",width:"5.75rem",align:"end",noFilter:!0,text:e=>e.problems===null?"":`${e.problems}`,value:e=>e.problems,largestFirst:!0,cell:kl},{id:"kubernetes",title:"Kubernetes",width:"6.5rem",least:900,text:e=>e.kubernetesVersion,value:e=>e.kubernetesVersion},{id:"agentk",title:"agentk",width:"6rem",least:1240,text:e=>e.agentkVersion,value:e=>e.agentkVersion},{id:"labels",title:"Labels",width:"minmax(8rem, 1.4fr)",least:1e3,noFilter:!0,text:e=>Object.entries(e.labels).map(([t,n])=>`${t}=${n}`).join(" "),value:e=>Object.keys(e.labels).length,cell:(e,t)=>a`<${rt} labels=${e.labels} most=${3} tab=${t} />`},{id:"age",title:"Data",width:"5.5rem",align:"end",noFilter:!0,largestFirst:!0,text:e=>e.state==="live"?"now":e.lastSeen?`${e.lastSeen}`:"",value:e=>e.state==="live"?0:e.lastSeen?w()-e.lastSeen:null,cell:wl},{id:"nodes-bad",title:"Broken nodes",width:"0",isHidden:!0,noFilter:!0,text:e=>`${e.nodes?.bad??0}`,value:e=>e.nodes?.bad??0},{id:"workloads-bad",title:"Failed workloads",width:"0",isHidden:!0,noFilter:!0,text:e=>`${e.workloads?.bad??0}`,value:e=>e.workloads?.bad??0}];function Pr(e,t,n){return e?a`<a class=${e.bad?"number number--bad":"number"} href=${t} tabindex=${n}>${Ct(e)}</a>`:a`<span class="muted" title="you may not list these in all namespaces">–</span>`}function wl(e){return e.state==="live"?a`<span class="muted">now</span>`:e.lastSeen?a`<${W} at=${e.lastSeen} />`:a`<span class="muted">–</span>`}function Dr(e,t,n){let s=e.lastSeen?Q(w()-e.lastSeen):"",o=[e.nodes&&`${Ct(e.nodes)} nodes`,e.workloads&&`${Ct(e.workloads)} workloads`,e.state!=="live"&&s&&`data ${s} old`].filter(Boolean);return a`
<span class="narrow__main">
<a class="row-link" href=${n} tabindex="-1"><${Y} text=${e.name} /></a>
<${xt} state=${e.state} />
</span>
<span class="narrow__more">
<span class="muted">${o.join(" · ")||"no data"}</span>
${e.problems!==null&&e.problems>0&&a`<a class="number number--bad" tabindex=${t}
href=${M(e.name,"problems")}>${e.problems} problems</a>`}
</span>`}var xl=[Fr],dn=e=>me(`${E}/fleet`,{q:e});function Ir(){let e=ce(),t=Se.value,{error:n,isLoaded:s,isComplete:o,reason:r,since:i}=xe.value,{found:l,items:p,sort:d,terms:u,query:m,group:f}=et(t,at,"-worst",xl),c=!t.length&&(e.state.value==="loading"||!s&&!n),h=e.state.value==="refused";return a`
<${X} title="Fleet"><${Sl} /><//>
${t.length>0&&h&&a`<${Cl} feed=${e} />`}
${!o&&a`<${Ml} reason=${r} />`}
${c&&a`<${ee} label="loading clusters" />`}
${!c&&!t.length&&(n||h)&&a`
<${oe} what="Clusters" status=${n?.status??e.status.value} message=${n?.message??e.reason.value}
since=${n?i:e.since.value} retryAt=${e.retryAt.value} retry=${()=>{wt(),h&&e.retry()}} />`}
${!c&&!t.length&&!n&&!h&&o&&a`
<${J} icon="server" title="No clusters yet">
<p>Add an agent, and install agentk in its cluster with one command:</p>
<p class="command"><code>kasctl agent install NAME --context CONTEXT</code></p>
<//>`}
${t.length>0&&a`
<section class="list" aria-label="clusters">
<${Qe} columns=${at} rows=${t} hits=${l.length} total=${t.length} noun="clusters"
example="env=prod state!=live">
<${Al} rows=${t} group=${f} />
<${Ye} name="clusters" columns=${at} rows=${l} />
<//>
<${sn} label="clusters" columns=${at} items=${p} sort=${d} query=${m}
link=${g=>M(g.name)} openKey=""
rowTitle=${g=>({title:g.name,detail:g.state})} narrow=${Dr} />
${!l.length&&a`<${Ze} terms=${u} columns=${at} rows=${t} noun="clusters" />`}
</section>`}`}var fn=e=>e.toLocaleString("en");function Sl(){let e=Yt.value;if(!e.clusters)return a`<p class="totals"> </p>`;let t=["late","offline","never","denied"].filter(n=>e[n]);return a`
<dl class="totals">
<div><dt>clusters</dt><dd><a href=${`${E}/fleet`}>${fn(e.clusters)}</a></dd>
<dd class="totals__more"><a href=${dn("state=live")}>${e.live} live</a>
${t.map(n=>a`
<a key=${n} class="totals__warn" href=${dn(`state=${n}`)}>${e[n]} ${n}</a>`)}</dd></div>
<div><dt>nodes</dt><dd><a href=${me(`${E}/fleet`,{sort:"-nodes"})}>${fn(e.nodes)}</a></dd>
<dd class="totals__more">${e.brokenNodes?a`<a class="totals__bad" href=${dn("nodes-bad>0")}>${e.brokenNodes} not ready</a>`:"all ready"}</dd></div>
<div><dt>workloads</dt><dd><a href=${me(`${E}/fleet`,{sort:"-workloads"})}>${fn(e.workloads)}</a></dd>
<dd class="totals__more">${e.brokenWorkloads?a`<a class="totals__bad" href=${dn("workloads-bad>0")}>${e.brokenWorkloads} failed</a>`:"none failed"}</dd></div>
<div><dt>problems</dt><dd><a href=${`${E}/problems`}>${fn(e.problems)}</a></dd>
<dd class="totals__more">${e.problems?`in ${e.troubled} clusters`:"everything is as specified"}${e.oldProblems?`, ${e.oldProblems} of old data`:""}</dd></div>
</dl>`}function Al({rows:e,group:t}){let n=mr(e);return!n.length&&!t?null:a`
<label class="select"><span>Group by</span>
<select value=${t} onChange=${o=>D(H({group:o.target.value||null}))}>
<option value="">no group</option>
${[...new Set([...n,...t?[t]:[]])].map(o=>a`<option key=${o} value=${o}>${o}</option>`)}
</select></label>`}function Cl({feed:e}){return a`<div class="notice notice--warning"><span>kas sends no changes: ${e.reason}</span>
<button type="button" class="button" onClick=${()=>e.retry()}>Retry now</button></div>`}function Ml({reason:e}){function t(n){n.preventDefault();let s=new FormData(n.target).get("name");typeof s=="string"&&s.trim()&&D(M(s.trim()))}return a`
<form class="notice open-cluster" onSubmit=${t}>
<p>${e||"kas cannot list all your clusters."} The list has the clusters that you opened here.</p>
<label>Open a cluster <input name="name" type="text" autocomplete="off" required placeholder="name of its agent" /></label>
<button type="submit" class="button button--primary">Open</button>
</form>`}function Br({part:e}){let t=K(null),[n,s]=L(""),[o,r]=L(0),[i]=L(w());return P(()=>{let l,p=!1;return Tl(e.style),import(e.script).then(d=>{p||!t.current||(l=d.mount(t.current,{user:B.user,csrf:B.csrf,getJson:fe,go:D,clusterAddress:M}))}).catch(d=>s(String(d))),()=>{p=!0,typeof l=="function"&&l()}},[e,o]),a`
<${X} title=${e.title} />
${n&&a`<${oe} what=${e.title} status=${500} message=${n} since=${i} retry=${()=>{s(""),r(o+1)}} />`}
<div ref=${t}></div>`}function Tl(e){if(!e||document.querySelector(`link[href="${CSS.escape(e)}"]`))return;let t=document.createElement("link");t.rel="stylesheet",t.href=e,document.head.append(t)}var Hr=3e3,Ur=3e4,El=50,He=k({rows:null,incomplete:[],missingKas:0,isCut:!1,error:null,since:w(),retryAt:0}),hs=new Map,mn=0,$s=0,ms=!1;async function $n(){hs=new Map(Se.peek().map(e=>[e.name,e.source])),await Wr(()=>Un("/api/v1/problems",{clusters:ze().join(",")}),()=>!0)}async function Wr(e,t){if(!ms){ms=!0,clearTimeout($s);try{let n=await e(),s=He.peek();He.value={rows:[...(s.rows??[]).filter(o=>!t(o.cluster)),...n.items],incomplete:[...s.incomplete.filter(o=>!t(o.name)),...n.incomplete],missingKas:n.missingKas,isCut:n.isCut,error:null,since:w(),retryAt:0},hn(Hr)}catch(n){He.value={...He.peek(),error:n,since:w(),retryAt:w()+Ur/1e3},hn(Ur)}finally{ms=!1}}}function hn(e){clearTimeout($s),mn&&($s=setTimeout(Ol,e))}function Ol(){if(!mn)return;if(He.peek().rows===null){$n();return}let e=document.hidden?[]:Se.peek().filter(n=>hs.get(n.name)!==n.source).slice(0,El);if(!e.length){hn(Hr);return}for(let n of e)hs.set(n.name,n.source);let t=new Set(e.map(n=>n.name));Wr(()=>Un("/api/v1/problems",{clusters:[...t].join(",")}),n=>t.has(n))}function qr(){return P(()=>(ce(),mn+=1,He.peek().rows===null?$n():hn(0),()=>{mn-=1}),[]),He.value}var[jl,Nl,...Ll]=Be.problems,Pl=[jl,Nl,st,...Ll],Rl=[ot];function Kr(){let{rows:e,incomplete:t,missingKas:n,isCut:s,error:o,since:r,retryAt:i}=qr(),l=T(()=>(e??[]).map(p=>us(p)),[e]);return a`
<${X} title="Problems"><p class="muted">Objects that have not reached the state of their specification.</p><//>
${!e&&o&&a`<${oe} what="problems" status=${o.status} message=${o.message} since=${r}
retryAt=${i} retry=${$n} />`}
${!e&&!o&&a`<${ee} label="loading problems" />`}
${e&&a`
${o&&a`<div class="notice notice--warning">The rows are old: ${o.message}</div>`}
<${Xe} incomplete=${t} missingKas=${n} isCut=${s} />
<${je} noun="problems" example="kind!=Pod cluster~eu" columns=${Pl} rows=${l}
order="-trouble" hidden=${Rl} hasCluster=${!0}
panel=${p=>a`<${it} row=${p} tab="" />`}
empty=${a`<${J} title="No problems"><p>Each object that you may see has reached the state of its
specification.</p><p><a href=${`${E}/fleet`}>All clusters</a></p><//>`} />`}`}function _n({label:e,class:t="",onClose:n,children:s}){let o=K(null);P(()=>{let i=document.activeElement;return o.current?.showModal(),()=>{i instanceof HTMLElement&&i.isConnected&&i.focus({preventScroll:!0})}},[]);function r(i){i.target===o.current&&n()}return a`
<dialog ref=${o} class=${`dialog ${t}`} aria-label=${e} onClose=${n} onClick=${r}>
<div class="dialog__inner">${s}</div>
</dialog>`}var Fl=[["Anywhere",[["Ctrl K","commands, clusters and objects"],["?","this list"],...At.map(([e,t])=>[`g ${e}`,t.toLowerCase()])]],["In a list",[["/","filter"],["j k","next and previous row"],["↓ ↑","the same, in the table"],["Enter","open the row"],["Home End","first and last row"]]],["In the filter",[["Space","finish a term"],["↓ Enter","take a completion"],["Backspace","edit the last term"],["Esc","leave"]]],["In the side panel",[["j k","next and previous object"],["Esc","close"]]]];function Vr(){return a`
<${_n} label="Keys" class="help" onClose=${()=>{G.value=""}}>
<h2>Keys</h2>
<div class="help__groups">
${Fl.map(([e,t])=>a`
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
<//>`}var Gr=50;function Dl(){let e=t=>()=>D(t);return[...At.map(([t,n,s])=>({kind:"Page",title:n,detail:`g ${t}`,run:e(s)})),...B.parts.map(t=>({kind:"Page",title:t.title,run:e(t.path)})),...["light","dark","system"].filter(t=>t!==Fe.value).map(t=>({kind:"Action",title:`Theme: ${t}`,run:()=>{Fe.value=t}})),ye.value==="compact"?{kind:"Action",title:"Density: comfortable",run:()=>{ye.value="comfortable"}}:{kind:"Action",title:"Density: compact",run:()=>{ye.value="compact"}},ae.value?{kind:"Action",title:"Times: local zone",run:()=>{ae.value=""}}:{kind:"Action",title:"Times: UTC",run:()=>{ae.value="UTC"}},{kind:"Action",title:le.value?"Turn off single-key shortcuts":"Turn on single-key shortcuts",run:()=>{le.value=!le.value}},{kind:"Action",title:"Show all keys",detail:"?",run:()=>{G.value="help"}},{kind:"Action",title:"Sign out",run:()=>{Gt()}}]}function zr(){let[e,t]=L(""),[n,s]=L(0),o=K(null),r=T(()=>{let d=Se.peek(),u=pe.peek(),m=c=>()=>D(M(c)),f=d.filter(c=>!u.includes(c.name));return[...u.map(c=>({kind:"Recent",title:c,detail:"cluster",run:m(c)})),...Dl(),...f.map(({name:c,state:h})=>({kind:"Cluster",title:c,detail:h,run:m(c)})),...(re.peek()?.objects()??[]).map(({title:c,detail:h,href:g})=>({kind:"Object",title:c,detail:h,run:()=>D(g)}))]},[]),i=T(()=>Il(r,e),[r,e]);function l(d){G.value="",d.run()}function p(d){if(d.key==="ArrowDown"||d.key==="ArrowUp"){d.preventDefault();let u=d.key==="ArrowDown"?1:-1,m=i.length?(n+u+i.length)%i.length:0;s(m),o.current?.children[m]?.scrollIntoView({block:"nearest"})}else d.key==="Enter"&&i[n]&&(d.preventDefault(),l(i[n]))}return a`
<${_n} label="Commands" class="palette" onClose=${()=>{G.peek()==="palette"&&(G.value="")}}>
<input class="palette__input" type="text" role="combobox" aria-label="command, cluster or object" autofocus
aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" autocomplete="off" spellcheck="false"
aria-activedescendant=${i.length?`palette-${n}`:null} placeholder="Cluster, object, page or action"
value=${e} onKeyDown=${p} onInput=${d=>{t(d.target.value),s(0)}} />
${i.length?a`<ul class="palette__list" id="palette-list" role="listbox" aria-label="results" ref=${o}>
${i.map((d,u)=>a`
<li key=${`${d.kind}${d.title}${d.detail}`} id=${`palette-${u}`} role="option"
aria-selected=${u===n} class=${de("palette__item",u===n&&"is-chosen")}
onPointerMove=${()=>s(u)} onClick=${()=>l(d)}>
<span class="palette__kind">${d.kind}</span>
<span class="palette__title">${d.title}</span>
<span class="muted">${d.detail}</span>
</li>`)}
</ul>`:a`<p class="palette__none" id="palette-list" role="status">Nothing is called “${e}”.</p>`}
<//>`}function Il(e,t){let n=t.toLowerCase().split(/\s+/).filter(Boolean);return n.length?e.map(s=>({one:s,rank:Bl(s,n)})).filter(({rank:s})=>s>0).sort((s,o)=>o.rank-s.rank).slice(0,Gr).map(({one:s})=>s):e.filter(s=>s.kind!=="Object").slice(0,Gr)}function Bl(e,t){let n=e.title.toLowerCase(),s=`${n} ${e.detail??""} ${e.kind}`.toLowerCase();return t.every(o=>s.includes(o))?n===t[0]?4:n.startsWith(t[0])?3:n.includes(t[0])?2:1:0}var _s=k(!1),Jr=!1;te(()=>{let e=ke.value.state==="open";e&&Jr||(e&&ke.peek().since>B.now+30&&Ul(),Jr=e)});async function Ul(){try{let e=await fetch(location.pathname,{credentials:"same-origin",headers:{Accept:"text/html"}}),t=/"build":\s*"([^"]*)"/.exec(await e.text());t&&t[1]!==B.build&&(_s.value=!0)}catch{}}function vs({legend:e,name:t,options:n,chosen:s}){return a`
<fieldset class="choice">
<legend>${e}</legend>
<div class="choice__options">
${n.map(([o,r])=>a`
<label key=${o}><input type="radio" name=${t} checked=${s.value===o}
onChange=${()=>{s.value=o}} /><span>${r}</span></label>`)}
</div>
</fieldset>`}function Zr(){let e=Intl.DateTimeFormat().resolvedOptions().timeZone;return a`
<button type="button" class="nav__item user-button" popovertarget="user-menu" aria-label="settings and user">
<${x} name="circleUser" /><span class="nav__text">${B.user.name||"user"}</span>
</button>
<div id="user-menu" class="user-menu" popover="auto" role="dialog" aria-label="settings and user">
<p class="user-menu__who"><strong>${B.user.name}</strong><span class="muted">signed in with ${B.user.method==="oidc"?"single sign-on":"a token"}</span></p>
<${vs} legend="Theme" name="theme" chosen=${Fe}
options=${[["system","System"],["light","Light"],["dark","Dark"]]} />
<${vs} legend="Density" name="density" chosen=${ye}
options=${[["comfortable","Comfortable"],["compact","Compact"]]} />
<${vs} legend="Times" name="zone" chosen=${ae} options=${[["",e],["UTC","UTC"]]} />
<label class="switch"><input type="checkbox" checked=${le.value}
onChange=${t=>{le.value=t.target.checked}} /> Single-key shortcuts</label>
<div class="user-menu__buttons">
<button type="button" class="button" popovertarget="user-menu" popovertargetaction="hide"
onClick=${()=>{G.value="help"}}>Keys</button>
<button type="button" class="button" onClick=${Gt}>Sign out</button>
</div>
</div>`}var Hl=5,Wl=[["fleet","Fleet","server"],["problems","Problems","triangleAlert"],["events","Events","bell"],["applications","Applications","boxes"]];function ql(){let{path:e}=N.value,t=e===E?"fleet":e.slice(E.length+1),{problems:n}=Yt.value,s=[...new Set([...Oe.value,...pe.value])].slice(0,10);return a`
<nav class="nav" aria-label="pages">
<a class="nav__brand" href=${`${E}/fleet`}><${Kl} /><span>kas</span></a>
<button type="button" class="nav__search" onClick=${()=>{G.value="palette"}}>
<${x} name="search" /><span class="nav__text">Go to…</span><kbd>Ctrl K</kbd>
</button>
<ul class="nav__list">
${Wl.map(([o,r,i])=>a`
<li key=${o}><a class="nav__item" href=${`${E}/${o}`} aria-current=${t===o?"page":null}>
<${x} name=${i} /><span class="nav__text">${r}</span>
${o==="problems"&&n>0&&a`<span class="nav__count">${n>999?"999+":n}</span>`}
</a></li>`)}
${B.parts.map(o=>a`
<li key=${o.name}><a class="nav__item" href=${o.path} aria-current=${e===o.path?"page":null}>
<${x} name="layers" /><span class="nav__text">${o.title}</span></a></li>`)}
</ul>
${s.length>0&&a`
<div class="nav__known">
<h2>${Oe.value.length?"Pinned and recent":"Recent"}</h2>
<ul class="nav__list">${s.map(o=>a`
<li key=${o}><a class="nav__item nav__item--small" href=${M(o)} title=${o}
aria-current=${e.startsWith(M(o))?"true":null}>
<${x} name=${Oe.value.includes(o)?"pin":"clock"} size=${14} /><span class="nav__text">${o}</span>
</a></li>`)}
</ul>
</div>`}
<div class="nav__end"><${Zr} /></div>
</nav>`}function Kl(){return a`
<svg class="logo" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
<path d="M4 2v16M4 11.5 14.5 2M8.5 8 16 18" />
</svg>`}function Vl(){return De.value?a`<div class="banner" role="alert"><span>You are signed out. The rows below do not change any more.</span>
<a class="button" href=${co()}>Sign in</a></div>`:null}function Gl(){ge.value;let{state:e,since:t}=ke.value,n=w()-t,s=!De.value&&e!=="open"&&n>Hl,o=Ge.value?`data of ${Q(w()-Ge.value)} ago`:"no data yet";return a`
<footer class="footer">
<span>kas ${B.version}</span>
<span class=${s?"footer__lost":""}>${s?`no connection to kas for ${Q(n)}, reconnecting; ${o}`:e==="open"?`live${Ge.value?`, last change ${Q(w()-Ge.value)} ago`:""}`:"connecting"}</span>
<span>${ae.value||Intl.DateTimeFormat().resolvedOptions().timeZone}</span>
${_s.value&&a`<button type="button" class="button button--quiet" onClick=${()=>location.reload()}>
kas was upgraded: reload</button>`}
</footer>`}function Xr({children:e}){return a`
<a class="skip" href="#main">Skip to content</a>
<div class="shell">
<${ql} />
<div class="shell__page">
<${Vl} />
<main id="main" class="main" tabindex="-1">${e}</main>
<${Gl} />
</div>
</div>
<${cr} />`}function zl(){let{path:e}=N.value,t=B.parts.find(r=>r.path===e);if(t)return a`<${Br} key=${e} part=${t} />`;let[n,s,o=""]=e.slice(E.length+1).split("/").map(Jl);switch(n){case"":case"fleet":return a`<${Ir} />`;case"problems":return a`<${Kr} />`;case"events":return a`<${Lr} />`;case"applications":return a`<${Mr} />`;case"clusters":if(s)return a`<${Nr} key=${s} name=${s} tab=${o} />`;default:return a`
<${X} title="Not found" />
<${J} icon="search" title="This page does not exist"><p><a href=${`${E}/fleet`}>All clusters</a></p><//>`}}function Jl(e){try{return decodeURIComponent(e)}catch{return e}}function Zl(){return a`
<${Xr}><${zl} /><//>
${G.value==="palette"&&a`<${zr} />`}
${G.value==="help"&&a`<${Vr} />`}`}wt();var gs=document.getElementById("app");gs&&(gs.replaceChildren(),Cn(a`<${Zl} />`,gs));
