// Elementwise chains as text (kernels/gpu/chain.h).
#include <fmt/core.h>

#include <cmath>

#include "src/network/device_steps.hpp"

namespace faltung::network {
namespace {

struct OpText {
  const char* name;
  int inputs;
};
constexpr OpText kOps[] = {
#define FALTUNG_MAP(op, inputs, value) {#op, inputs},
#include "kernels/common/map_ops.inc"
#undef FALTUNG_MAP
};

std::string constant_text(float value) {
  if (std::isfinite(value)) return fmt::format("{:a}f", value);
  return value > 0 ? "F_INFINITY" : value < 0 ? "(-F_INFINITY)" : "(F_INFINITY - F_INFINITY)";
}

}  // namespace

std::string instruction_text(const MapInstruction& in, const std::string& x, const std::string& y,
                             const std::string& z) {
  const OpText& op = kOps[static_cast<std::size_t>(in.op)];
  return fmt::format("map_{}({}, {}, {}, {}, {})", op.name, x, op.inputs > 1 ? y : x, op.inputs > 2 ? z : x,
                     constant_text(in.a), constant_text(in.b));
}

gpu::Constants chain_constants(std::size_t inputs, const std::vector<MapInstruction>& program,
                               MapElement to) {
  std::string text;
  std::vector<std::string> registers(kMapRegisters);
  for (std::size_t i = 0; i < inputs; ++i) registers[i] = "v" + std::to_string(static_cast<std::int64_t>(i));
  std::string result = registers[0];
  for (std::size_t i = 0; i < program.size(); ++i) {
    const MapInstruction& in = program[i];
    result = "t" + std::to_string(static_cast<std::int64_t>(i));
    text += fmt::format("const float {} = {}; ", result,
                        instruction_text(in, registers[in.x], registers[in.y], registers[in.z]));
    registers[in.to] = result;
  }
  gpu::Constants all{{"CHAIN", text}, {"RESULT", result}};
  if (is_half(to)) all.push_back({"RESULT_HAS_16_BITS", "1"});
  return all;
}

}  // namespace faltung::network
