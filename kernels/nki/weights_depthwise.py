def load_weights(dst, raw, identity, w, cn, k0):
    """dst[c, 0, tap, k] <- w[k0 + k, 0, tap] where c is k, and zero beside: each filter on the diagonal."""
    nisa.dma_copy(dst=raw[0:cn, :], src=w.reshape((K, R * S))[k0 : k0 + cn, :])
    for tap in range(R * S):
        nisa.tensor_scalar(
            dst=dst[0:cn, 0, tap, 0:cn],
            data=identity[0:cn, 0:cn],
            op0=nl.multiply,
            operand0=raw[0:cn, tap : tap + 1],
            engine=VECTOR,
        )
