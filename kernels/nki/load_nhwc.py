def load(dst, px, turned, src, n, images, c, cn, h0, h1, w0, w1, width, top, left):
    """dst[channel, tile, image, top + row, left + column] <- src's window. 128 pixels at a time come and are turned."""
    rows = 128 // width if w1 - w0 == width and width <= 128 else 1
    for i in range(images):
        for h in range(h0, h1, rows):
            hn = min(rows, h1 - h)
            for v in range(w0, w1, 128):
                vn = min(128, w1 - v)
                mine, first = px[(h // rows + v // 128) % 2], h * width + v
                nisa.dma_copy(dst=mine[0 : hn * vn, 0:cn], src=src[n + i, first : first + hn * vn, c : c + cn])
                for ct in range((cn + 127) // 128):
                    ctn = min(128, cn - ct * 128)
                    flat = turned[ct % 2][0:ctn, 0 : hn * vn]
                    data = mine[0 : hn * vn, ct * 128 : ct * 128 + ctn]
                    nisa.nc_transpose(dst=flat, data=data, engine=TENSOR)
                    view = dst[0:ctn, ct, i, top + h - h0 : top + h - h0 + hn, left + v - w0 : left + v - w0 + vn]
                    nisa.tensor_copy(dst=view, src=flat.reshape_dim(1, (hn, vn)), engine=VECTOR)
