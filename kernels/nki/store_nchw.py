def store(y, src, n, images, k, kw, y0, y1, z0, z1):
    dst = y[n : n + images, k : k + kw, y0:y1, z0:z1].permute((1, 0, 2, 3))
    nisa.dma_copy(dst=dst, src=src[0:kw, 0:images, 0 : y1 - y0, 0 : z1 - z0])
