// oneDNN's side of bench --vs onednn: activations in the problem's own layout, weights in whatever format
// oneDNN likes best, reordered beforehand, as ours are packed beforehand (in backward_data at every run, as
// ours).
//
// Called as faltung-peer-onednn-blocked: there activations too are in the format that oneDNN likes best,
// reordered before anything is timed. That is what a network gets that keeps all its tensors in oneDNN's own
// layout.
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "bench/peers/onednn_terms.hpp"

namespace faltung::peers {
namespace {

enum class Activations { as_given, blocked };

// A primitive with its arguments; in calls_ without those that change from set to set.
struct Call {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};

struct Set {
  memory x, y, residual, w;
};

class OneDnn : public Adapter {
 public:
  explicit OneDnn(Activations activations) : is_blocked_(activations == Activations::blocked) {}

  std::string version() const override {
    const dnnl_version_t* v = dnnl_version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
           std::to_string(v->patch);
  }

  std::string prepare(const Task& task) override {
    sets_.clear();
    calls_.clear();
    runs_.clear();
    if (task.device != "cpu") throw Declined("this adapter knows the cpu alone, not " + task.device);
    if (bias_dtype(task.problem) != task.problem.dtype)
      throw Declined("a bias of its own type is not described to oneDNN here");
    if (has_affine(task.problem)) throw Declined("oneDNN reads x as it is, not through a scale and shift");
    if (has_pitch(task.problem)) throw Declined("slices of tensors are not described to oneDNN here");
    if (task.problem.epilogue.residual_order == ResidualOrder::after_activation)
      throw Declined("a sum after an activation is not described to oneDNN here");
    if (is_blocked_ && (task.problem.direction != Direction::forward || task.problem.epilogue.residual ||
                        task.problem.epilogue.pool.kind != PoolKind::none)) {
      throw Declined("oneDNN's own layout is timed for fwd without residual and pool alone");
    }
    if (is_transposed(task.problem) && (task.problem.direction != Direction::forward || is_blocked_ ||
                                        task.problem.epilogue.pool.kind != PoolKind::none)) {
      throw Declined("a transposed convolution's gradients are a plain one's; those are timed");
    }
    problem_ = task.problem;
    omp_set_num_threads(task.threads);
    // A sum adds to what y holds, so that the residual costs no extra tensor; a pool has y elsewhere.
    const Epilogue& e = problem_.epilogue;
    residual_in_y_ = e.residual && e.pool.kind == PoolKind::none;
    try {
      load(task);
      std::string name;
      switch (problem_.direction) {
        case Direction::forward:
          name = forward();
          break;
        case Direction::backward_data:
          name = backward_data();
          break;
        case Direction::backward_weights:
          name = backward_weights();
          break;
      }
      for (const Set& set : sets_) runs_.push_back(run_on(set));
      run_next();
      return name;
    } catch (const dnnl::error& error) {
      throw Declined(std::string("oneDNN: ") + error.what());
    }
  }

  double time_once() override {
    const auto begin = std::chrono::steady_clock::now();
    run_next();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  std::vector<char> result() override {
    Set& set = sets_.front();
    if (residual_in_y_) fill(set.y, residual_);
    turn_ = 0;
    run_next();
    if (is_blocked_) {
      const memory y = reordered(set.y, describe(problem_, conv_shape(problem_)));
      const char* bytes = static_cast<const char*>(y.get_data_handle());
      return {bytes, bytes + y.get_desc().get_size()};
    }
    const memory& m = problem_.direction == Direction::forward         ? set.y
                      : problem_.direction == Direction::backward_data ? set.x
                                                                       : set.w;
    const char* bytes = static_cast<const char*>(m.get_data_handle());
    return {bytes, bytes + m.get_desc().get_size()};
  }

 private:
  // Memory that is aligned as the harness aligns ours.
  memory make(const memory::desc& d) {
    const std::size_t bytes = std::max<std::size_t>(64, (d.get_size() + 63) / 64 * 64);
    std::shared_ptr<void> owner(std::aligned_alloc(64, bytes), std::free);
    if (!owner) throw std::bad_alloc();
    memory m(d, engine_, owner.get());
    std::memset(owner.get(), 0, bytes);
    memories_.push_back(std::move(owner));
    return m;
  }
  static void fill(memory& m, const std::vector<char>& bytes) {
    std::memcpy(m.get_data_handle(), bytes.data(), std::min(bytes.size(), m.get_desc().get_size()));
  }
  memory make(const memory::desc& d, const std::vector<char>& content) {
    memory m = make(d);
    fill(m, content);
    return m;
  }

  void load(const Task& task) {
    memories_.clear();
    const Problem& p = problem_;
    const auto data = [&](const char* name, const TensorShape& s) {
      return tensor_data(task, name, static_cast<std::size_t>(s.elements()));
    };
    const bool forward = p.direction == Direction::forward;
    const bool reads_x = p.direction != Direction::backward_data;
    const std::vector<char> x = reads_x ? data("x", x_shape(p)) : std::vector<char>();
    const std::vector<char> y = forward ? std::vector<char>() : data("y", conv_shape(p));
    residual_ = p.epilogue.residual ? data("residual", conv_shape(p)) : std::vector<char>();
    for (int i = 0; i < task.sets; ++i) {
      Set set;
      set.x = make(describe(p, x_shape(p)), x);
      set.y = make(describe(p, forward ? y_shape(p) : conv_shape(p)), residual_in_y_ ? residual_ : y);
      if (p.epilogue.residual && !residual_in_y_) set.residual = make(describe(p, conv_shape(p)), residual_);
      if (p.direction == Direction::backward_weights) set.w = make(describe_filter(p));
      sets_.push_back(std::move(set));
    }
    if (p.direction != Direction::backward_weights) w_ = make(describe_filter(p), data("w", w_shape(p)));
    if (p.epilogue.bias) {
      bias_ = make({{p.k}, data_type(p.dtype), memory::format_tag::a},
                   data("bias", make_shape(Layout::nchw, 1, p.k, 1, 1)));
    }
    turn_ = 0;
  }

  memory reordered(memory from, const memory::desc& to) {
    if (from.get_desc() == to) return from;
    memory m = make(to);
    dnnl::reorder(from, m).execute(stream_, from, m);
    stream_.wait();
    return m;
  }

  memory::dims strides() const {
    return with_spatial(problem_, {}, {problem_.stride_d, problem_.stride_h, problem_.stride_w});
  }
  memory::dims dilations() const {
    return with_spatial(problem_, {},
                        {problem_.dilation_d - 1, problem_.dilation_h - 1, problem_.dilation_w - 1});
  }
  memory::dims before() const {
    return with_spatial(problem_, {}, {problem_.pad_front, problem_.pad_top, problem_.pad_left});
  }
  // Less by the output padding.
  memory::dims after() const {
    const Problem& p = problem_;
    return with_spatial(
        p, {}, {p.pad_back - p.output_pad_d, p.pad_bottom - p.output_pad_h, p.pad_right - p.output_pad_w});
  }

  // tf32 is computed as f32: oneDNN's other modes for f32 tensors keep fewer bits than tf32's ten.
  dnnl::convolution_forward::primitive_desc forward_desc(dnnl::prop_kind kind,
                                                         const dnnl::primitive_attr& attr) {
    const Problem& p = problem_;
    const memory::desc bias = p.epilogue.bias ? bias_.get_desc() : memory::desc();
    const auto activation = [&](const memory::desc& d) { return is_blocked_ ? any_format(d) : d; };
    return {dnnl::convolution_forward::desc(
                kind, dnnl::algorithm::convolution_auto, activation(describe(p, x_shape(p))),
                any_format(describe_filter(p)), bias, activation(describe(p, conv_shape(p))), strides(),
                dilations(), before(), after()),
            attr, engine_};
  }

  std::string forward() {
    const Problem& p = problem_;
    const Epilogue& e = p.epilogue;
    dnnl::primitive_attr attr;
    dnnl::post_ops ops;
    if (residual_in_y_) {
      ops.append_sum();
    } else if (e.residual) {
      ops.append_binary(dnnl::algorithm::binary_add, describe(p, conv_shape(p)));
    }
    append_activation(ops, e);
    attr.set_post_ops(ops);
    if (is_transposed(p)) return transposed(attr);
    const auto desc = forward_desc(dnnl::prop_kind::forward_inference, attr);
    std::string name = desc.impl_info_str();
    Call conv{dnnl::convolution_forward(desc), {{DNNL_ARG_WEIGHTS, reordered(w_, desc.weights_desc())}}};
    if (e.bias) conv.arguments[DNNL_ARG_BIAS] = bias_;
    if (is_blocked_) {
      for (Set& set : sets_) {
        set.x = reordered(set.x, desc.src_desc());
        set.y = make(desc.dst_desc());
      }
    }
    if (e.pool.kind == PoolKind::none) {
      calls_.push_back(std::move(conv));
      return name;
    }
    const Pool& pool = e.pool;
    const auto kind = pool.kind == PoolKind::max ? dnnl::algorithm::pooling_max
                                                 : dnnl::algorithm::pooling_avg_exclude_padding;
    const auto spatial = [&](std::int64_t h, std::int64_t w) { return with_spatial(p, {}, {1, h, w}); };
    const dnnl::pooling_forward::primitive_desc pool_desc(
        dnnl::pooling_forward::desc(dnnl::prop_kind::forward_inference, kind, describe(p, conv_shape(p)),
                                    describe(p, y_shape(p)), spatial(pool.stride_h, pool.stride_w),
                                    spatial(pool.size_h, pool.size_w), spatial(pool.pad_top, pool.pad_left),
                                    spatial(pool.pad_bottom, pool.pad_right)),
        engine_);
    const memory between = make(describe(p, conv_shape(p)));
    conv.arguments[DNNL_ARG_DST] = between;
    calls_.push_back(std::move(conv));
    calls_.push_back({dnnl::pooling_forward(pool_desc), {{DNNL_ARG_SRC, between}}});
    return name + "+" + pool_desc.impl_info_str();
  }

  std::string transposed(const dnnl::primitive_attr& attr) {
    const Problem& p = problem_;
    const memory::desc bias = p.epilogue.bias ? bias_.get_desc() : memory::desc();
    const dnnl::deconvolution_forward::primitive_desc desc(
        dnnl::deconvolution_forward::desc(dnnl::prop_kind::forward_inference,
                                          dnnl::algorithm::deconvolution_direct, describe(p, x_shape(p)),
                                          any_format(describe_filter(p)), bias, describe(p, conv_shape(p)),
                                          strides(), dilations(), before(), after()),
        attr, engine_);
    Call call{dnnl::deconvolution_forward(desc), {{DNNL_ARG_WEIGHTS, reordered(w_, desc.weights_desc())}}};
    if (p.epilogue.bias) call.arguments[DNNL_ARG_BIAS] = bias_;
    calls_.push_back(std::move(call));
    return desc.impl_info_str();
  }

  // The weights change at every step: bringing them into oneDNN's format is part of the work, as packing is
  // of ours.
  std::string backward_data() {
    const Problem& p = problem_;
    const dnnl::primitive_attr attr;
    const dnnl::convolution_backward_data::primitive_desc desc(
        dnnl::convolution_backward_data::desc(dnnl::algorithm::convolution_auto, describe(p, x_shape(p)),
                                              any_format(describe_filter(p)), describe(p, conv_shape(p)),
                                              strides(), dilations(), before(), after()),
        attr, engine_, forward_desc(dnnl::prop_kind::forward_training, attr));
    memory w = w_;
    std::string name = desc.impl_info_str();
    if (desc.weights_desc() != describe_filter(p)) {
      w = make(desc.weights_desc());
      calls_.push_back({dnnl::reorder(w_, w), {{DNNL_ARG_FROM, w_}, {DNNL_ARG_TO, w}}});
      name = "reorder+" + name;
    }
    calls_.push_back({dnnl::convolution_backward_data(desc), {{DNNL_ARG_WEIGHTS, w}}});
    return name;
  }

  // The gradient is left in the user's layout; bringing it there is part of the work.
  std::string backward_weights() {
    const Problem& p = problem_;
    const dnnl::primitive_attr attr;
    const dnnl::convolution_backward_weights::primitive_desc desc(
        dnnl::convolution_backward_weights::desc(dnnl::algorithm::convolution_auto, describe(p, x_shape(p)),
                                                 any_format(describe_filter(p)), describe(p, conv_shape(p)),
                                                 strides(), dilations(), before(), after()),
        attr, engine_, forward_desc(dnnl::prop_kind::forward_training, attr));
    const memory::desc theirs = desc.diff_weights_desc();
    Call call{dnnl::convolution_backward_weights(desc), {}};
    std::string name = desc.impl_info_str();
    if (theirs != describe_filter(p)) {
      const memory between = make(theirs);
      call.arguments[DNNL_ARG_DIFF_WEIGHTS] = between;
      calls_.push_back(std::move(call));
      calls_.push_back({dnnl::reorder(between, sets_.front().w), {{DNNL_ARG_FROM, between}}});
      return name + "+reorder";
    }
    calls_.push_back(std::move(call));
    return name;
  }

  // The calls with a set's tensors: made beforehand, so that none of it is timed.
  std::vector<Call> run_on(const Set& set) const {
    std::vector<Call> run = calls_;
    for (auto& [primitive, arguments] : run) {
      switch (problem_.direction) {
        case Direction::forward:
          arguments.emplace(DNNL_ARG_SRC, set.x);  // a pool has its own
          arguments.emplace(DNNL_ARG_DST, set.y);  // a convolution before a pool, too
          if (set.residual) {
            arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, set.residual);
          }
          break;
        case Direction::backward_data:
          if (arguments.count(DNNL_ARG_FROM) > 0) break;  // the reorder before it
          arguments.emplace(DNNL_ARG_DIFF_DST, set.y);
          arguments.emplace(DNNL_ARG_DIFF_SRC, set.x);
          break;
        case Direction::backward_weights:
          if (arguments.count(DNNL_ARG_FROM) > 0) {  // the reorder after it
            arguments.emplace(DNNL_ARG_TO, set.w);
            break;
          }
          arguments.emplace(DNNL_ARG_SRC, set.x);
          arguments.emplace(DNNL_ARG_DIFF_DST, set.y);
          arguments.emplace(DNNL_ARG_DIFF_WEIGHTS, set.w);
          break;
      }
    }
    return run;
  }

  void run_next() {
    for (const auto& [primitive, arguments] : runs_[turn_++ % runs_.size()])
      primitive.execute(stream_, arguments);
    stream_.wait();
  }

  const bool is_blocked_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Problem problem_;
  bool residual_in_y_ = false;
  std::vector<std::shared_ptr<void>> memories_;
  std::vector<char> residual_;
  memory w_, bias_;
  std::vector<Set> sets_;
  std::vector<Call> calls_;
  std::vector<std::vector<Call>> runs_;  // of each set
  std::size_t turn_ = 0;
};

}  // namespace
}  // namespace faltung::peers

int main(int, char** argv) {
  // OpenMP's threads spin for their next piece of work. About a millisecond is more than enough between
  // primitives; the default of tens of milliseconds would take processors from us while we are timed. The
  // runtime reads this before main, so start anew with it.
  if (std::getenv("GOMP_SPINCOUNT") == nullptr) {
    setenv("GOMP_SPINCOUNT", "20000", 1);
    execv("/proc/self/exe", argv);
  }
  using namespace faltung::peers;
  const bool is_blocked = std::string_view(argv[0]).ends_with("-blocked");
  OneDnn adapter(is_blocked ? Activations::blocked : Activations::as_given);
  return serve(adapter);
}
