def pool(
    out,
    sums,  #? average
    values,
    kw,
    images,
    y0,
    y1,
    z0,
    z1,
):
    """Windows of what is in SBUF: each position in them is a view."""
    yn, zn = y1 - y0, z1 - z0
    high, wide = (yn - 1) * POOL_STRIDE_H + 1, (zn - 1) * POOL_STRIDE_W + 1
    mine = out[0:kw, 0:images, 0:yn, 0:zn]  #? max
    mine = sums[0:kw, 0:images, 0:yn, 0:zn]  #? average
    before = values[0:kw, 0:images, 0:high:POOL_STRIDE_H, 0:wide:POOL_STRIDE_W]
    for t in range(1, POOL_H * POOL_W):
        i, j = t // POOL_W, t % POOL_W
        view = values[0:kw, 0:images, i : i + high : POOL_STRIDE_H, j : j + wide : POOL_STRIDE_W]
        nisa.tensor_tensor(dst=mine, data1=before, data2=view, op=POOL_OP, engine=VECTOR)
        before = mine
    nisa.tensor_copy(dst=mine, src=before, engine=VECTOR)  #? narrow
    for i in range(yn):  # windows that the padding cuts have fewer elements  #? average & pool_padded
        scale(mine[:, :, i : i + 1, :], (y0 + i) * POOL_STRIDE_H - POOL_TOP, POOL_H, P)  #? average & pool_padded
    for j in range(zn):  #? average & pool_padded
        scale(mine[:, :, :, j : j + 1], (z0 + j) * POOL_STRIDE_W - POOL_LEFT, POOL_W, Q)  #? average & pool_padded
    share = 1.0 / (POOL_H * POOL_W)  #? average
    nisa.tensor_scalar(dst=out[0:kw, 0:images, 0:yn, 0:zn], data=mine, op0=nl.multiply, operand0=share, engine=VECTOR)  #? average


def scale(view, first, size, end):  #? average & pool_padded
    share = size / (min(end, first + size) - max(0, first))  #? average & pool_padded
    if share > 1:  #? average & pool_padded
        nisa.tensor_scalar(dst=view, data=view, op0=nl.multiply, operand0=share, engine=VECTOR)  #? average & pool_padded
