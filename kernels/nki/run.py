def run(
    x,
    w,
    bias,  #? bias
    residual,  #? residual
):
    """y of arrays, of the types and shapes above: tensors of PyTorch or JAX on a Neuron device; NumPy's by nki.simulate."""
    return (nki.simulate(convolution) if type(x).__module__ == "numpy" else convolution)(
        x,
        w,
        bias,  #? bias
        residual,  #? residual
    )
