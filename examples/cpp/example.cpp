// A convolution layer with bias and ReLU, run twice with weights packed once.
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

#include "faltung/faltung.hpp"

int main() {
  try {
    // 3×3 filters, 16 → 32 channels, 20×24 pixels, padding 1, f32, NCHW: as text, or field by field.
    faltung::Problem problem = faltung::parse_problem("fwd:n2c16h20w24k32r3s3:pad1:f32:nchw");
    problem.epilogue.bias = true;
    problem.epilogue.activation = faltung::Activation::relu;
    faltung::validate(problem);

    faltung::Engine engine;  // remembers what it learns in ~/.cache/faltung
    faltung::Request request;
    request.threads = 2;
    const faltung::Plan plan = engine.plan(problem, request);
    std::printf("%s\nruns on %s\n", faltung::to_string(problem).c_str(), plan.kernel().c_str());

    const auto floats = [](std::int64_t count, float value) {
      return std::vector<float>(static_cast<std::size_t>(count), value);
    };
    std::vector<float> x = floats(problem.n * problem.c * problem.h * problem.w, 1.0f);
    std::vector<float> w = floats(problem.k * problem.c * problem.r * problem.s, 0.5f);
    std::vector<float> bias = floats(problem.k, -2.0f);
    std::vector<float> y = floats(problem.n * problem.k * problem.y_h() * problem.y_w(), 0.0f);

    // Constant weights are brought into the kernel's own order once; each thread that runs the plan brings
    // its own workspace.
    const std::shared_ptr<const faltung::PackedWeights> packed = plan.pack_weights(w.data());
    std::vector<std::byte> workspace(plan.workspace_bytes(/*weights_are_packed=*/true));
    faltung::Tensors tensors;
    tensors.x = x.data();
    tensors.w = w.data();
    tensors.y = y.data();
    tensors.bias = bias.data();
    faltung::RunOptions options;
    options.workspace = workspace.data();
    options.weights = packed.get();
    plan.run(tensors, options);

    // Inside the image: 16 channels × 9 taps × 0.5 − 2 = 70. In the corner 4 taps remain: 30.
    const float corner = y[0], inside = y[static_cast<std::size_t>(5 * problem.y_w() + 5)];
    std::printf("corner %g, inside %g\n", corner, inside);
    if (corner != 30.0f || inside != 70.0f) return 1;

    for (float& value : x) value = -1.0f;
    plan.run(tensors, options);
    std::printf("of negative input, after ReLU: %g\n", y[0]);
    return y[0] == 0.0f ? 0 : 1;
  } catch (const faltung::Error& error) {
    std::fprintf(stderr, "example: %s\n", error.what());
    return 2;
  }
}
