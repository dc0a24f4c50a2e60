// OpenCL's programs: compiled from text, kept as binaries, and made into kernels in each context that they
// run in.
#ifndef FALTUNG_SRC_BACKEND_OPENCL_PROGRAM_HPP_
#define FALTUNG_SRC_BACKEND_OPENCL_PROGRAM_HPP_

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/backend/opencl_api.hpp"

namespace faltung::opencl {

// A device, and the words by which messages call it.
struct Target {
  DeviceId device;
  std::string name;
};

// The driver's binary, or the text itself where it gives none, with its log.
Binary compile(const Target& target, Context context, const KernelSource& source, const std::string& options);

// A kernel's code, and its handle in each context that it has run in. Setting a handle's arguments and
// submitting it is one step, so that threads may share it.
class ProgramKernel : public Kernel {
 public:
  ProgramKernel(Target target, const Binary& binary, std::string entry)
      : entry(std::move(entry)), log(binary.log), target_(std::move(target)), code_(binary.code) {}
  ~ProgramKernel() override;

  // With the mutex held: the handle in this context, made where it is new; any, or null where there is none.
  KernelHandle handle(Context context) const;
  KernelHandle any_handle() const { return handles_.empty() ? nullptr : handles_.begin()->second; }

  // With the mutex held: sets an argument, unless the handle has it from the launch before: a call takes the
  // driver up to a microsecond. serial: of the buffer whose handle it is, for another buffer may get the same
  // one.
  void set(KernelHandle handle, Uint index, std::size_t bytes, const void* value,
           std::uint64_t serial = 0) const;

  const std::string entry, log;
  mutable std::mutex mutex;

 private:
  const Target target_;
  const std::string code_;
  mutable std::map<Context, KernelHandle> handles_;
  struct Held {
    std::string value;
    std::uint64_t serial = 0;
  };
  mutable std::map<KernelHandle, std::vector<Held>> held_;
};

}  // namespace faltung::opencl

#endif  // FALTUNG_SRC_BACKEND_OPENCL_PROGRAM_HPP_
