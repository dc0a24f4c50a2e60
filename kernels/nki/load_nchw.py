def load(dst, src, n, images, c, cn, h0, h1, w0, w1, top, left):
    """dst[channel, tile, image, top + row, left + column] <- src's rows h0 to h1 and columns w0 to w1."""
    for ct in range((cn + 127) // 128):
        first = c + ct * 128
        ctn = min(128, cn - ct * 128)
        window = src[n : n + images, first : first + ctn, h0:h1, w0:w1].permute((1, 0, 2, 3))
        nisa.dma_copy(dst=dst[0:ctn, ct, 0:images, top : top + h1 - h0, left : left + w1 - w0], src=window)
