def load(
    dst,
    px,
    turned,
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
    width,
):
    """dst[channel, tile, image, row, column] <- src's window: 128 pixels at a time come and are turned."""  #? !padded
    """dst[channel, tile, image, row, column] <- src's window: 128 pixels at a time come and are turned; zero beyond."""  #? padded
    ha, hb, wa, wb = h0, h1, w0, w1  #? !padded
    ha, hb, wa, wb = max(0, h0), min(height, h1), max(0, w0), min(width, w1)  #? padded
    for ct in range((cn + 127) // 128 if hb - ha < h1 - h0 or wb - wa < w1 - w0 else 0):  #? padded
        beyond = dst[0 : min(128, cn - ct * 128), ct, 0:images, 0 : h1 - h0, 0 : w1 - w0]  #? padded
        nisa.memset(dst=beyond, value=0.0, engine=GPSIMD)  #? padded
    rows = 128 // width if wb - wa == width and width <= 128 else 1
    for i in range(images):
        for h in range(ha, hb, rows):
            for v in range(wa, wb, 128):
                hn, vn, first = min(rows, hb - h), min(128, wb - v), h * width + v
                mine = px[(h // rows + v // 128) % 2]
                nisa.dma_copy(dst=mine[0 : hn * vn, 0:cn], src=src[n + i, first : first + hn * vn, c : c + cn])
                for ct in range((cn + 127) // 128):
                    ctn = min(128, cn - ct * 128)
                    flat = turned[ct % 2][0:ctn, 0 : hn * vn]
                    nisa.nc_transpose(dst=flat, data=mine[0 : hn * vn, ct * 128 : ct * 128 + ctn], engine=TENSOR)
                    view = dst[0:ctn, ct, i, h - h0 : h - h0 + hn, v - w0 : v - w0 + vn]
                    nisa.tensor_copy(dst=view, src=flat.reshape_dim(1, (hn, vn)), engine=VECTOR)
