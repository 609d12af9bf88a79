"""The codebooks of packed weights of 2 and 3 bits: each code stands for several numbers at once.

A codebook is stored as an ascending list of integers. The digits of an integer are indices into a list of magnitudes.
The file holds the differences between neighbours, as 16 bits each, deflated.
"""

import base64
import functools
import zlib

import numpy as np

_DIFFERENCES = {
    "iq2_xxs": (
        "c-mEw!AiqG6h*Hxgb;=xA%sE7P$Wnw5<+oNqze}!(nXOjq|1JZOFzJG@mu^J&%BO72{W1Z=HC16dm~-``3jbs&xM@}TVAF8ooYoQ"
        "Pt>T_wPmZB>+{*qajlk9rC^N6`qlNbe#dRl2Gn!bE5Z3(FCiN;l_u6YGd;R1Ep-Fp$ykjR_;Ey|?kv;k%6zZcC;qP)S8D*<>O@t~"
        "&AaaZbzFdVxs%3pQykcX`H1GBN4+E3>X4C+N-JY-aCYuA_1Cipyp8miJOu4@3$h}=gum6^_yOesZiM0V26EJgzD>Qw#lj~4sF(RI"
        "(i@~1blf*+9&|+eJpYmGpa(p)R66R5seBqXf;p+YnDhhew-^K"
    ),
    "iq2_xs": (
        "c-n=ML2JV>426XW#+VR72%(HnN*JMx5=t38j2(LDX^fr6PCM<m-?E>)&$1WVrs*(oB~^M)dX|WpIoTE8p4j2@S1avVg-yTJS=8&D"
        "Ng+<^f0)AUXE8hoty+b~TUlImlPOy0BnQEzXho)lyW-v?hFe|Olgeoq71)LjV!YzqPqKoQW4EbdkJrdH@sxNqekOw)<zb@fA5S$}"
        "mYNkc9TP{El6w!nC!XUyr`bKYHQhZCUGVjqe@pjE?XJ(9!QoO>q1@B`h}x8D<*Idfu?A}xQ5>fuUZ<JfW;UoDx5mh$EM+%p<5ZXM"
        "x)w#PtU+n;a_z8FO^kf&Zp4n9>TTo;v?W=EylO8Sc?WwZ2dYBl+y*o!x&>~Fs`1s!v16mUR77ex2JT+BuB6&4hLcY?0<s^cEckyx"
        "ZYwX`HSs%D;Xt*azYnJCdE1q;MV%e!136vNK2(Qp*7BnmasRf86J9B3-^23@mMj^e"
    ),
    "iq2_s": (
        "c-oy+OKQVF3>9GzLojAAC757JFvWyWvM3>oE_;Tap^M!A0F^XjXZ~@5u|1ZhXX!m@46rF2YQ;0sRb?YFiBiEEjC>GufY1uEBCCFo"
        "M|@!6iz$kFkT=3M%E-4PbeS4UY;YxQkRMxoL``^%Ypq)tp~+URs`{vE)iovWYqRi!E_Za+e9g}>S@U50l;wS*n@%G843>c%tr($&"
        "V^J%cg_aIffktyrVvvm{U1oNA;YAfYu3i~;)ZpG3m;#>nj%kE%s-hu3?uNIOiu$vF*{pK&Qdeg7#;A_|<vv@}6|(|emeHMft4e%R"
        "jBQ10UR|Hs@xnQIt*1G1SRI|S4NC`IGw(Ishow3LC+eJZ_wbc0^JM5Nmajv!WBHlzT(GBsAJ@T0`es9Y{0pDKy!tzfzZ0Uj^OX5U"
        "=VQIB<(x37SM#W4rY!0;n7~O;dg`$Yog1p96N~aDr=<2BMH7y-ens4;eRz`04-`2r>RxCy()}j5_K!I4P7|F2<u;0bjQZ|)QVwwx"
        "?F{@8j-d?BRP7*t7tZ2?p8f%+y&0h"
    ),
    "iq3_xxs": (
        "c-l>nT~C8R5JfK_-_RlyslnFP+N2s2qdxnlzBT^;f8&`cA%^TOJ9FmFos~kqn02LqJyot-zg?m!f03W1DrFO$dc>$gi58rRSC=}d"
        "(+a}q(BqvNeP|$Rnmu$gYhO;Q3$*r##a`!pss|K8YI4=om1rDvVsFu{bSAU=r(|Ap-MeNqDU3c@=C_N>n!U!4&Gy3Dqq62+z<#@%"
        "L3i_vJ#0L?C^<*(R+DM8#K|Xn2a(`tq<c%|#9BcwU@Ll@xh?72KwWDKbtG$@dvcMhzteZXX#zDs*ld}ew3+74i2mZ($i^!+5L=WU"
        "srf<es5d%W-d-TUNdsT#8DFt(@NE6|MD2}Qed!PKX%Cq"
    ),
}


@functools.cache
def codebook(name: str) -> np.ndarray:
    """Returns the magnitudes of each code of a format: float32, (codes, 8), or (256, 4) for iq3_xxs."""
    magnitudes, digits = ((4, 12, 20, 28, 36, 44, 52, 62), 4) if name == "iq3_xxs" else ((8, 25, 43), 8)
    differences = np.frombuffer(zlib.decompress(base64.b85decode(_DIFFERENCES[name])), "<u2")
    numbers = np.cumsum(differences, dtype=np.int64)[:, None]
    return np.asarray(magnitudes, np.float32)[numbers // len(magnitudes) ** np.arange(digits) % len(magnitudes)]
