V=('full','gate','mean','nocontrol')
b=NPSE()
evaluate(b,'g','w64',variants=V)
evaluate(b,'m','w64',variants=V)
T=Training
for tag,m in (('w128',replace(b,width=128)),('wd1',replace(b,training=T(weight_decay=1.0))),('wd.1',replace(b,training=T(weight_decay=.1))),('linear-beta',replace(b,schedule='linear-beta')),('8000 steps',replace(b,training=T(steps=8000))),('lr3e-3',replace(b,training=T(learning_rates=(3e-3,)))),('nobase',replace(b,base=False))):
    evaluate(m,'m',tag,variants=V)
