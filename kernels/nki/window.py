def load_window(
    dst,
    px,  #? nhwc
    turned,  #? nhwc
    src,
    n,
    images,
    c,
    cn,
    h0,
    h1,
    w0,
    w1,
):
    """The same of a window that may reach beyond the image, where it is zero."""
    ha, hb, wa, wb = max(0, h0), min(H, h1), max(0, w0), min(W, w1)
    if hb - ha < h1 - h0 or wb - wa < w1 - w0:
        for ct in range((cn + 127) // 128):
            mine = dst[0 : min(128, cn - ct * 128), ct, 0:images, 0 : h1 - h0, 0 : w1 - w0]
            nisa.memset(dst=mine, value=0.0, engine=GPSIMD)
    if hb > ha and wb > wa:
        load(dst, src, n, images, c, cn, ha, hb, wa, wb, ha - h0, wa - w0)  #? !nhwc
        load(dst, px, turned, src, n, images, c, cn, ha, hb, wa, wb, W, ha - h0, wa - w0)  #? nhwc
