#include "bench/peers/serve.hpp"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "src/problem/dtype.hpp"
#include "tools/block.hpp"

namespace faltung::peers {
namespace {

// prepare device=cpu threads=2 sets=8 data=/tmp/x <problem, to the end of the line>
Task parse_task(std::istringstream& words) {
  Task task;
  std::string word;
  while (words >> word) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals),
                      value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "device") {
      task.device = value;
    } else if (key == "threads") {
      task.threads = std::stoi(value);
    } else if (key == "sets") {
      task.sets = std::stoi(value);
    } else if (key == "data") {
      task.data = value;
    } else {
      task.problem = parse_problem(word);
    }
  }
  return task;
}

std::string answer(Adapter& adapter, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "prepare") {
    try {
      return "ready " + adapter.prepare(parse_task(words));
    } catch (const Declined& why) {
      return std::string("declined ") + why.what();
    }
  }
  if (verb == "run") {
    double seconds = 0;
    words >> seconds;
    const tools::Block block = tools::run_block([&] { return adapter.time_once(); }, seconds * 1000);
    char text[160];
    std::snprintf(text, sizeof text, "ms %.6f %.6f %.6f %d", block.median, block.min, block.max, block.runs);
    return text;
  }
  if (verb == "result") {
    std::string file;
    words >> file;
    const std::vector<char> bytes = adapter.result();
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return out.flush() ? "done" : "failed to write " + file;
  }
  return "failed: unknown request '" + verb + "'";
}

}  // namespace

int serve(Adapter& adapter) {
  std::cout << "peer 1 " << adapter.version() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::string text;
    try {
      text = answer(adapter, line);
    } catch (const std::exception& error) {
      text = std::string("failed: ") + error.what();
    }
    std::cout << text << std::endl;
  }
  return 0;
}

std::vector<char> tensor_data(const Task& task, const std::string& name, std::size_t elements) {
  const DType dtype = task.problem.dtype;
  std::vector<char> bytes(elements * static_cast<std::size_t>(size_of(dtype)));
  if (!task.data.empty()) {
    std::ifstream in(task.data + "/" + name + ".bin", std::ios::binary);
    if (in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return bytes;
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::size_t i = 0; i < elements; ++i) {
    store_element(dtype, bytes.data(), static_cast<std::int64_t>(i), uniform(random));
  }
  return bytes;
}

}  // namespace faltung::peers
