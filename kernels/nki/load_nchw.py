def load(
    dst,
    src,
    n,
    images,
    c,
    cn,
    h0,
    h1,
    w0,
    w1,
    height,  #? padded
    width,  #? padded
):
    """dst[channel, tile, image, row, column] <- src's rows h0 to h1 and columns w0 to w1."""  #? !padded
    """dst[channel, tile, image, row, column] <- src's rows h0 to h1 and columns w0 to w1; zero beyond the image."""  #? padded
    ha, hb, wa, wb = max(0, h0), min(height, h1), max(0, w0), min(width, w1)  #? padded
    for ct in range((cn + 127) // 128):
        first, ctn = c + ct * 128, min(128, cn - ct * 128)
        mine = dst[0:ctn, ct, 0:images, 0 : h1 - h0, 0 : w1 - w0]
        window = src[n : n + images, first : first + ctn, h0:h1, w0:w1].permute((1, 0, 2, 3))  #? !padded
        nisa.dma_copy(dst=mine, src=window)  #? !padded
        if hb - ha < h1 - h0 or wb - wa < w1 - w0:  #? padded
            nisa.memset(dst=mine, value=0.0, engine=GPSIMD)  #? padded
        if hb > ha and wb > wa:  #? padded
            window = src[n : n + images, first : first + ctn, ha:hb, wa:wb].permute((1, 0, 2, 3))  #? padded
            nisa.dma_copy(dst=mine[:, :, ha - h0 : hb - h0, wa - w0 : wb - w0], src=window)  #? padded
