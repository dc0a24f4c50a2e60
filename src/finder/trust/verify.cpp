#include "src/finder/trust/verify.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/finder/sums.hpp"

namespace faltung {
namespace {

constexpr std::size_t kGuard = 4096;  // bytes on each side
constexpr unsigned char kGuardByte = 0xfb;
constexpr unsigned char kPoison = 0xff;  // NaN in every dtype
constexpr std::size_t kPiece = std::size_t{1}
                               << 22;  // bytes: pages of the host are touched once, not for all

// A device buffer between two guard zones. content: host memory that outlives it; null: filled with poison.
class Guarded {
 public:
  Guarded(Device& device, std::string name, std::size_t bytes, const void* content)
      : device_(device),
        name_(std::move(name)),
        bytes_(bytes),
        content_(static_cast<const std::byte*>(content)),
        buffer_(device.allocate(bytes + 2 * kGuard)) {
    const std::vector<unsigned char> guard(kGuard, kGuardByte);
    device_.copy_in(at(0, kGuard), guard.data(), kGuard);
    device_.copy_in(at(kGuard + bytes, kGuard), guard.data(), kGuard);
    const std::vector<unsigned char> poison(content == nullptr ? std::min(bytes, kPiece) : 0, kPoison);
    each_piece([&](std::size_t from, std::size_t size) {
      const void* const piece =
          content_ != nullptr ? static_cast<const void*>(content_ + from) : poison.data();
      device_.copy_in(at(kGuard + from, size), piece, size);
      return true;
    });
  }

  void* pointer() const { return at(kGuard, 0).pointer; }

  // Empty if the guard zones, and the content of an input, are as they were.
  std::string damage() const {
    std::vector<unsigned char> before(kGuard), past(kGuard);
    device_.copy_out(before.data(), at(0, kGuard), kGuard);
    device_.copy_out(past.data(), at(kGuard + bytes_, kGuard), kGuard);
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (before[kGuard - 1 - i] != kGuardByte)
        return "wrote " + std::to_string(i + 1) + " bytes before " + name_;
      if (past[i] != kGuardByte) return "wrote " + std::to_string(i + 1) + " bytes past " + name_;
    }
    if (content_ == nullptr) return "";
    std::vector<unsigned char> piece(std::min(bytes_, kPiece));
    const bool is_same = each_piece([&](std::size_t from, std::size_t size) {
      device_.copy_out(piece.data(), at(kGuard + from, size), size);
      return std::memcmp(content_ + from, piece.data(), size) == 0;
    });
    return is_same ? "" : "changed its input " + name_;
  }

  std::vector<unsigned char> content() const {
    std::vector<unsigned char> content(bytes_);
    if (bytes_ > 0) device_.copy_out(content.data(), at(kGuard, bytes_), bytes_);
    return content;
  }

 private:
  Buffer at(std::size_t offset, std::size_t bytes) const {
    return {nullptr, static_cast<std::byte*>(buffer_.pointer) + offset, bytes};
  }

  // use: false ends it, and is the answer.
  template <typename Use>
  bool each_piece(const Use& use) const {
    for (std::size_t from = 0; from < bytes_; from += kPiece) {
      if (!use(from, std::min(kPiece, bytes_ - from))) return false;
    }
    return true;
  }

  Device& device_;
  std::string name_;
  std::size_t bytes_;
  const std::byte* content_;
  Buffer buffer_;
};

// What lies between the parts of a slice is others': empty if it is as it was.
std::string damage_between(const Problem& p, const std::vector<unsigned char>& content) {
  if (p.y_pitch == 0) return "";
  const Runs runs = runs_of(p, y_shape(p));
  for (std::size_t i = 0; i < content.size(); ++i) {
    const auto in_period = static_cast<std::int64_t>(i) % runs.period;
    if (in_period >= runs.bytes && content[i] != kPoison)
      return "wrote " + std::to_string(in_period - runs.bytes + 1) + " bytes past a part of the slice y";
  }
  return "";
}

}  // namespace

const char* name(Phase phase) {
  constexpr const char* kNames[] = {"open", "compile", "run", "check"};
  return kNames[static_cast<int>(phase)];
}

Report verify(const PlanImpl& plan, const Accuracy& accuracy, const Oracle& oracle, const Parallel& parallel,
              const Watch& watch) {
  const Problem& p = oracle.problem();
  Device& device = plan.device();
  const Tensors& host = oracle.tensors();
  const auto bytes = [&](const TensorShape& shape) { return static_cast<std::size_t>(bytes_of(p, shape)); };
  const Guarded x(device, "x", bytes(x_shape(p)), host.x), w(device, "w", bytes(w_shape(p)), host.w);
  const Guarded y(device, "y", bytes(p.direction == Direction::forward ? y_shape(p) : conv_shape(p)), host.y);
  const Guarded bias(device, "bias", faltung::bytes(p, Tensor::bias), host.bias);
  const Guarded residual(device, "residual", host.residual != nullptr ? bytes(conv_shape(p)) : 0,
                         host.residual);
  const Guarded relu(device, "relu", host.relu != nullptr ? bytes(x_shape(p)) : 0, host.relu);
  const Guarded sums(device, "sums", faltung::bytes(p, Tensor::sums), nullptr);
  const Guarded scale(device, "scale", faltung::bytes(p, Tensor::scale), host.scale);
  const Guarded shift(device, "shift", faltung::bytes(p, Tensor::shift), host.shift);
  const Guarded slopes(device, "slopes", faltung::bytes(p, Tensor::slopes), host.slopes);
  const Tensors tensors{x.pointer(),    w.pointer(),    y.pointer(),     bias.pointer(),  residual.pointer(),
                        relu.pointer(), sums.pointer(), scale.pointer(), shift.pointer(), slopes.pointer()};
  const Guarded& result = p.direction == Direction::forward         ? y
                          : p.direction == Direction::backward_data ? x
                                                                    : w;

  std::vector<unsigned char> first, first_sums;
  const bool packs = p.direction != Direction::backward_weights && plan.recipe().packed_bytes > 0;
  // Again with weights that rest, packed beforehand where there is something to pack.
  for (const bool rest : {false, true}) {
    if (rest && !packs && !reads_weights_early(plan.recipe())) continue;
    const bool packed = rest && packs;
    const std::size_t workspace_bytes = plan.workspace_bytes(packed);
    const Guarded workspace(device, "workspace", workspace_bytes, nullptr);
    if (watch) watch(Phase::run);
    const std::shared_ptr<const PackedWeights> weights = packed ? plan.pack_weights(tensors.w, {}) : nullptr;
    if (packed) device.synchronize({});
    RunOptions options;
    options.weights_rest = rest;
    options.workspace = workspace_bytes > 0 ? workspace.pointer() : nullptr;
    options.weights = weights.get();
    plan.run(tensors, options);
    device.synchronize({});
    if (watch) watch(Phase::check);
    for (const Guarded* buffer :
         {&x, &w, &y, &bias, &residual, &relu, &sums, &scale, &shift, &slopes, &workspace}) {
      const std::string damage = buffer->damage();
      if (!damage.empty()) return report_of(Outcome::out_of_bounds, damage, plan.kernel());
    }
    std::vector<unsigned char> content = result.content(), content_of_sums = sums.content();
    if (const std::string damage = damage_between(p, content); !damage.empty())
      return report_of(Outcome::out_of_bounds, damage, plan.kernel());
    if (rest && (content != first || content_of_sums != first_sums)) {
      return report_of(
          Outcome::wrong,
          std::string(packed ? "packed weights" : "weights at rest") + " give other bits than plain ones",
          plan.kernel());
    }
    if (!rest) first = std::move(content), first_sums = std::move(content_of_sums);
  }
  Finding finding = oracle.check(first.data(), accuracy, parallel);
  if (finding.right() && !first_sums.empty()) {
    const void* const summed = p.direction == Direction::forward ? first.data() : host.y;
    const Finding of_sums = check_sums(p, summed, reinterpret_cast<const float*>(first_sums.data()));
    if (!of_sums.right() || of_sums.error_over_bound > finding.error_over_bound) finding = of_sums;
  }
  Report report = finding.right() ? report_of(Outcome::pass, "", plan.kernel())
                                  : report_of(Outcome::wrong, finding.worst, plan.kernel());
  report.error_over_bound = finding.error_over_bound;
  return report;
}

Verifier::Verifier(const Problem& problem, std::shared_ptr<Device> device,
                   std::shared_ptr<const Parallel> parallel, std::uint64_t seed, double max_products)
    : problem_(problem),
      device_(std::move(device)),
      parallel_(std::move(parallel)),
      seed_(seed),
      max_products_(max_products) {}

const Oracle& Verifier::oracle(Data data) {
  const std::uint64_t seed = data == Data::small_integers ? seed_ : seed_ + 1;
  const auto found = oracles_.find(data);
  if (found != oracles_.end()) return found->second;
  return oracles_.try_emplace(data, problem_, data, seed, max_products_, parallel_.get()).first->second;
}

std::shared_ptr<const PlanImpl> make_plan(const Problem& problem, const Candidate& candidate,
                                          const std::shared_ptr<Device>& device, const jit::Session& session,
                                          const std::shared_ptr<const Parallel>& parallel,
                                          Denormals denormals) {
  return std::make_shared<const PlanImpl>(problem, candidate.kernel(), candidate.recipe(), device, session,
                                          device->info().kind == "cpu" ? parallel : nullptr, denormals);
}

Report Verifier::kernel(const Candidate& candidate, Store& store) {
  return kernel(*make_plan(problem_, candidate, device_, jit::Session(*device_, store), parallel_), candidate,
                {});
}

Report Verifier::kernel(const PlanImpl& plan, const Candidate& candidate, const Watch& watch) {
  if (watch) watch(Phase::check);
  Report exact = verify(plan, candidate.accuracy, oracle(Data::small_integers), *parallel_, watch);
  if (!passed(exact)) {
    exact.why = "on small integers: " + exact.why;
    return exact;
  }
  return verify(plan, candidate.accuracy, oracle(Data::random), *parallel_, watch);
}

}  // namespace faltung
