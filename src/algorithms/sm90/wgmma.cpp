#include "src/algorithms/sm90/wgmma.hpp"

#include "src/problem/problem.hpp"

namespace faltung::sm90 {

std::string wgmma_function(int n, DType dtype, First first, const std::string& transposed) {
  const bool registers = first == First::registers;
  const std::string type = dtype == DType::f32 ? "tf32" : name(dtype);
  const std::string depth = dtype == DType::f32 ? "k8" : "k16";
  const int sums = n / 2, of_a = registers ? 4 : 1;  // operands of the instruction
  const auto operand = [](int i) { return "%" + std::to_string(i); };
  std::string operands, outputs;
  for (int i = 0; i < sums; ++i) {
    operands += (i > 0 ? ", " : "") + operand(i);
    outputs += (i > 0 ? ", \"+f\"(d[" : "\"+f\"(d[") + std::to_string(i) + "])";
  }
  std::string a = operand(sums), inputs = "\"l\"(a)";
  if (registers) {
    a = "{" + operand(sums) + ", " + operand(sums + 1) + ", " + operand(sums + 2) + ", " + operand(sums + 3) +
        "}";
    inputs = "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])";
  }
  return "__device__ __forceinline__ void mma(float (&d)[" + std::to_string(sums) + "], " +
         (registers ? "const unsigned (&a)[4]" : "unsigned long long a") +
         ", unsigned long long b, int accumulate) {\n  asm volatile(\"{.reg .pred p; setp.ne.b32 p, " +
         operand(sums + of_a + 1) + ", 0; wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + depth +
         ".f32." + type + "." + type + " {" + operands + "}, " + a + ", " + operand(sums + of_a) +
         ", p, 1, 1" + transposed + ";}\"\n      : " + outputs + "\n      : " + inputs +
         ", \"l\"(b), \"r\"(accumulate));\n}\n";
}

}  // namespace faltung::sm90
