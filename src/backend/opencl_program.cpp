#include "src/backend/opencl_program.hpp"

#include <chrono>

namespace faltung::opencl {
namespace {

struct ProgramOwner {
  Program program = nullptr;
  ProgramOwner() = default;
  ProgramOwner(const ProgramOwner&) = delete;
  ProgramOwner& operator=(const ProgramOwner&) = delete;
  ~ProgramOwner() {
    if (program != nullptr) api()->release_program(program);
  }
};

// What Binary::code begins with: a driver that gives no binary has its source kept.
constexpr char kIsBinary = 'B', kIsSource = 'S';

std::string build_log(const Target& target, Program program) {
  return text_of(api()->get_build_info, program, target.device, kProgramBuildLog);
}

void build(const Target& target, const ProgramOwner& owner, const std::string& options,
           const std::string& what) {
  const Int code = api()->build_program(owner.program, 1, &target.device, options.c_str(), nullptr, nullptr);
  if (code == kSuccess) return;
  throw Error(Status::device_error, what + " does not compile on " + target.name + ": " + error_name(code) +
                                        "; options " + options +
                                        "; log: " + build_log(target, owner.program));
}

void build_source(const Target& target, ProgramOwner& owner, Context context, const std::string& text,
                  const std::string& options, const std::string& what) {
  Int error = 0;
  const char* begin = text.c_str();
  const std::size_t length = text.size();
  owner.program = api()->create_program(context, 1, &begin, &length, &error);
  check(error, "reading " + what);
  build(target, owner, options, what);
}

}  // namespace

Binary compile(const Target& target, Context context, const KernelSource& source,
               const std::string& options) {
  const auto begin = std::chrono::steady_clock::now();
  ProgramOwner owner;
  build_source(target, owner, context, source.text, options, "kernel " + source.name);
  Binary binary;
  binary.log = build_log(target, owner.program);
  std::size_t bytes = 0;
  api()->get_program_info(owner.program, kProgramBinarySizes, sizeof bytes, &bytes, nullptr);
  if (bytes > 0) {
    binary.code.assign(bytes + 1, kIsBinary);
    auto* to = reinterpret_cast<unsigned char*>(binary.code.data() + 1);
    check(api()->get_program_info(owner.program, kProgramBinaries, sizeof to, &to, nullptr),
          "reading the binary of kernel " + source.name);
  } else {
    binary.code = kIsSource + options + '\0' + source.text;
  }
  binary.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return binary;
}

void ProgramKernel::set(KernelHandle handle, Uint index, std::size_t bytes, const void* value,
                        std::uint64_t serial) const {
  std::vector<Held>& held = held_[handle];
  if (held.size() <= index) held.resize(index + 1);
  Held& own = held[index];
  const std::string_view wanted(static_cast<const char*>(value), bytes);
  if (own.value == wanted && own.serial == serial) return;
  own.value.clear();
  check(api()->set_kernel_argument(handle, index, bytes, value),
        [&] { return "argument " + std::to_string(index) + " of kernel " + entry + " on " + target_.name; });
  own.value = wanted, own.serial = serial;
}

ProgramKernel::~ProgramKernel() {
  for (const auto& [context, handle] : handles_) api()->release_kernel(handle);
}

KernelHandle ProgramKernel::handle(Context context) const {
  if (const auto found = handles_.find(context); found != handles_.end()) return found->second;
  const std::string what = "kernel " + entry;
  ProgramOwner owner;
  Int error = 0;
  if (code_.starts_with(kIsBinary)) {
    const auto* begin = reinterpret_cast<const unsigned char*>(code_.data() + 1);
    const std::size_t length = code_.size() - 1;
    Int status = 0;
    owner.program =
        api()->create_program_from_binary(context, 1, &target_.device, &length, &begin, &status, &error);
    check(error, "loading the binary of " + what);
    build(target_, owner, "", "the binary of " + what);
  } else if (code_.starts_with(kIsSource)) {
    const std::size_t end = code_.find('\0');
    if (end == std::string::npos) throw Error(Status::bad_file, what + ": its stored code is damaged");
    build_source(target_, owner, context, code_.substr(end + 1), code_.substr(1, end - 1), what);
  } else {
    throw Error(Status::bad_file, what + ": its stored code is no OpenCL program");
  }
  const KernelHandle handle = api()->create_kernel(owner.program, entry.c_str(), &error);
  check(error, "finding " + what + " in its program");
  return handles_[context] = handle;
}

}  // namespace faltung::opencl
