// What the drivers of CUDA and of HIP have alike: streams, events that measure time, and captured graphs.
#ifndef FALTUNG_SRC_BACKEND_STREAM_DEVICE_HPP_
#define FALTUNG_SRC_BACKEND_STREAM_DEVICE_HPP_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// Functions of a driver's library that both have with these parameters, and what they return: 0 for success.
struct StreamFunctions {
  int (*event_create)(void** event, unsigned flags);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_synchronize)(void* event);
  int (*event_elapsed)(float* ms, void* begin, void* end);
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*stream_synchronize)(void* stream);
  int (*stream_is_capturing)(void* stream, int* status);
  int (*stream_begin_capture)(void* stream, int mode);
  int (*stream_end_capture)(void* stream, void** graph);
  int (*graph_launch)(void* replay, void* stream);
  int (*graph_exec_destroy)(void* replay);
  int (*graph_destroy)(void* graph);
};

// What a device has recorded may also be submitted to a stream of the caller's, after what is there.
class StreamGraph : public Recording {
 public:
  virtual void submit(const Stream& stream) = 0;
};

class StreamDevice : public Device {
 public:
  double time_ms(const Stream& stream, const std::function<void()>& work) override;
  std::unique_ptr<Recording> record(const std::function<void(const Stream&)>& work) override;
  void synchronize(const Stream& stream) override;
  // Whether somebody records what is submitted to the stream.
  bool is_capturing(const Stream& stream) const;
  // Milliseconds of one replay of what `work` submits to the stream that it is given, captured as a graph:
  // free of launch gaps. One entry a replay, after one that is not timed.
  std::vector<double> time_replays(const std::function<void(const Stream&)>& work, int replays);

 protected:
  explicit StreamDevice(const StreamFunctions& functions) : functions_(functions) {}
  // The driver's functions then mean this device, on this thread.
  virtual void make_current() const = 0;
  // Throws what another answer than success says, after `what` was being done.
  virtual void check(int result, const std::string& what) const = 0;
  virtual int instantiate(void** replay, void* graph) const = 0;
  // How many blocks of a function the driver finds room for on a unit.
  virtual int blocks_of_unit(int* blocks, void* function, int threads, std::size_t shared_bytes) const = 0;
  // What a unit holds of a function whose registers and memory are told.
  void add_residence(KernelResources& resources, void* function, const KernelSource& source) const;

 private:
  class Event;
  class Graph;
  const StreamFunctions& functions_;
};

// A launch's arguments as both drivers take them: the place of each.
class LaunchValues {
 public:
  explicit LaunchValues(std::span<const Argument> arguments);
  void** get() { return values_; }

 private:
  static constexpr std::size_t kMost = 16;
  void* values_[kMost];
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_STREAM_DEVICE_HPP_
