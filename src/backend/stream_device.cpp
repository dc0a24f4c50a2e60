#include "src/backend/stream_device.hpp"

namespace faltung {

class StreamDevice::Event {
 public:
  explicit Event(const StreamDevice& device) : device_(device) {
    device_.check(device_.functions_.event_create(&handle_, 0), "making an event");
  }
  ~Event() { device_.functions_.event_destroy(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(void* stream) const {
    device_.check(device_.functions_.event_record(handle_, stream), "recording an event");
  }
  double ms_since(const Event& begin) const {
    device_.check(device_.functions_.event_synchronize(handle_), "waiting for an event");
    float ms = 0;
    device_.check(device_.functions_.event_elapsed(&ms, begin.handle_, handle_), "reading a time");
    return static_cast<double>(ms);
  }

 private:
  const StreamDevice& device_;
  void* handle_ = nullptr;
};

// A graph and the stream that it was captured on.
class StreamDevice::Graph : public StreamGraph {
 public:
  explicit Graph(const StreamDevice& device) : device_(device) {}
  ~Graph() override {
    if (replay != nullptr) device_.functions_.graph_exec_destroy(replay);
    if (graph != nullptr) device_.functions_.graph_destroy(graph);
    if (stream != nullptr) device_.functions_.stream_destroy(stream);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  double time_ms() override {
    device_.make_current();
    const Event begin(device_), end(device_);
    begin.record(stream);
    launch(stream);
    end.record(stream);
    return end.ms_since(begin);
  }
  void submit(const Stream& to) override {
    device_.make_current();
    launch(to.native);
  }

  void *stream = nullptr, *graph = nullptr, *replay = nullptr;

 private:
  void launch(void* to) const {
    const int result = device_.functions_.graph_launch(replay, to);
    if (result != 0) device_.check(result, "launching a graph");  // a text is made for it alone
  }
  const StreamDevice& device_;
};

double StreamDevice::time_ms(const Stream& stream, const std::function<void()>& work) {
  make_current();
  const Event begin(*this), end(*this);
  begin.record(stream.native);
  work();
  end.record(stream.native);
  return end.ms_since(begin);
}

std::unique_ptr<Recording> StreamDevice::record(const std::function<void(const Stream&)>& work) {
  make_current();
  auto recording = std::make_unique<Graph>(*this);
  constexpr unsigned kNonBlocking = 1;
  constexpr int kRelaxed = 2;
  check(functions_.stream_create(&recording->stream, kNonBlocking), "making a stream");
  check(functions_.stream_begin_capture(recording->stream, kRelaxed), "beginning a capture");
  try {
    work({nullptr, recording->stream});
  } catch (...) {
    functions_.stream_end_capture(recording->stream, &recording->graph);
    throw;
  }
  check(functions_.stream_end_capture(recording->stream, &recording->graph), "ending a capture");
  check(instantiate(&recording->replay, recording->graph), "instantiating a graph");
  return recording;
}

bool StreamDevice::is_capturing(const Stream& stream) const {
  make_current();
  int status = 0;
  // A stream that may not even be asked while another is recorded is taken to be recorded, too.
  return functions_.stream_is_capturing(stream.native, &status) != 0 || status != 0;
}

std::vector<double> StreamDevice::time_replays(const std::function<void(const Stream&)>& work, int replays) {
  const std::unique_ptr<Recording> recording = record(work);
  std::vector<double> ms;
  for (int i = 0; i <= replays; ++i) {
    const double once = recording->time_ms();
    if (i > 0) ms.push_back(once);
  }
  return ms;
}

void StreamDevice::synchronize(const Stream& stream) {
  make_current();
  check(functions_.stream_synchronize(stream.native), "waiting for " + info().id);
}

LaunchValues::LaunchValues(std::span<const Argument> arguments) {
  if (arguments.size() > kMost) throw Error(Status::internal, "a kernel of more than 16 arguments");
  for (std::size_t i = 0; i < arguments.size(); ++i) values_[i] = const_cast<void*>(arguments[i].value);
}

void StreamDevice::add_residence(KernelResources& r, void* function, const KernelSource& source) const {
  const UnitLimits& unit = info().unit;
  r.wave_threads = unit.wave_threads;
  // What is not said is what the kernel was compiled for.
  const int threads = source.block_threads > 0 ? source.block_threads : r.block_threads;
  int blocks = -1;
  if (threads <= 0 || !unit.known() ||
      blocks_of_unit(&blocks, function, threads, static_cast<std::size_t>(source.shared_bytes)) != 0) {
    return;
  }
  const Residence residence =
      unit.residence(threads, r.registers, static_cast<int>(r.local_bytes) + source.shared_bytes, blocks);
  r.blocks = residence.blocks, r.waves = residence.waves, r.occupancy = residence.occupancy;
  r.limited_by = residence.limited_by;
}

}  // namespace faltung
