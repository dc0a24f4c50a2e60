def store(y, src, px, turned, n, images, k, kw, y0, y1, z0, z1):
    """The tensor engine turns channels into pixels, 128 at a time, as they lie in memory."""
    rows = 128 // Y_W if z1 - z0 == Y_W and Y_W <= 128 else 1
    for i in range(images):
        for h in range(y0, y1, rows):
            for v in range(z0, z1, 128):
                hn, vn = min(rows, y1 - h), min(128, z1 - v)
                turn, first = (h // rows + v // 128) % 2, h * Y_W + v
                flat, mine = turned[turn][0 : hn * vn, 0:kw], px[turn][0 : hn * vn, 0:kw]
                data = src[0:kw, i, h - y0 : h - y0 + hn, v - z0 : v - z0 + vn]
                nisa.nc_transpose(dst=flat, data=data, engine=TENSOR)
                nisa.tensor_copy(dst=mine, src=flat, engine=VECTOR)
                nisa.dma_copy(dst=y[n + i, first : first + hn * vn, k : k + kw], src=mine)
