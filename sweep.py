import time, jax, jax.numpy as jnp, numpy as np, sys, json, os, warnings
sys.path.insert(0,'src')
warnings.simplefilter('ignore')
from dataclasses import replace
import scipy.stats as st
from scorefold.tasks import gaussian, mixture, bimodal
from scorefold.simulate.cases import Simulations
from scorefold.methods.npse import NPSE
from scorefold.train.fit import Training
from scorefold import posterior as P
from scorefold.posterior import Posterior
from scorefold.diagnose.c2st import c2st
from scorefold.diagnose.moments import mean_shift, sd_ratio
class FakePrior:
    def __init__(s,d): s.dim=d; s.names=tuple(f't{i}' for i in range(d))
    def to_normal(s,t): return t
    def from_normal(s,u): return u
mods={'g':(gaussian,10),'m':(mixture,10),'b':(bimodal,2)}
def sims(which,N,seed):
    mod,d=mods[which]; k1,k2=jax.random.split(jax.random.key(1000+seed))
    th=jax.random.normal(k1,(N,d)); x=jax.vmap(mod.simulate_one)(th,jax.random.split(k2,N))
    return Simulations(FakePrior(d),np.asarray(th,float),np.asarray(x)[:,None],np.ones(N,int),1,N,0,seed)
refs={}
def data(which,n,s):
    mod,d=mods[which]
    if (which,n,s) not in refs:
        k1,k2=jax.random.split(jax.random.key(77+s)); th=jax.random.normal(k1,(d,))
        x=np.asarray(jax.vmap(mod.simulate_one,(None,0))(th,jax.random.split(k2,n)))
        refs[which,n,s]=(x,mod.reference(x,1000,s))
    return refs[which,n,s]
def evaluate(method,which,tag,seeds=3,params=3,ns=(1,8,30),N=10000,variants=('full',)):
    res={}
    t0=time.time()
    for seed in range(seeds):
        sm=sims(which,N,seed)
        t=time.time(); ens,h=method.train(sm,seed,False); tt=time.time()-t
        for v in variants:
            e=ens
            if v=='nocontrol': e=type(ens)(ens.network,ens.standardize,ens.base,None)
            if v=='gate': e=type(ens)(ens.network,ens.standardize,ens.base,type(ens.control)(ens.control.t,ens.control.gate,0*ens.control.offset,0*ens.control.slope))
            if v=='mean': e=type(ens)(ens.network,ens.standardize,ens.base,type(ens.control)(ens.control.t,0*ens.control.gate+1,ens.control.offset,ens.control.slope))
            post=Posterior(sm.prior,method,e,h,sm.shape,1)
            for n in ns:
                for s in range(params):
                    x,ref=data(which,n,s+10*seed)
                    try:
                        d=post.sample(x,1000,seed=s); r=[c2st(d.theta,ref),np.sqrt((mean_shift(d.theta,ref)**2).mean()),sd_ratio(d.theta,ref).mean()]
                    except Exception as ex: r=[1,9,9]
                    res.setdefault((v,n),[]).append(r)
    gv=h.validation[:,0].mean()-h.validation.min(1).mean()
    for v in variants:
        print(f"{which} {tag:46s} {v:10s} "+" | ".join(f"n={n}: {np.mean(res[v,n],0)[0]:.3f}±{np.std(res[v,n],0)[0]:.3f} sh {np.mean(res[v,n],0)[1]:.2f} sd {np.mean(res[v,n],0)[2]:.2f}" for n in ns)+f"  gain {gv:.4f} kept {h.kept.mean():.0f}/{h.train.shape[1]} train {tt:.1f}s total {time.time()-t0:.0f}s",flush=True)
    if ens.control is not None: print('   gate',np.round(np.asarray(ens.control.gate)[::4],2),'offset',np.round(np.abs(ens.control.offset).max(1)[::4],3), flush=True)
    return res
if __name__=='__main__':
    exec(open(sys.argv[1]).read())
