// Runs a fuzz target without libFuzzer: over every file of its corpus, then over a number of mutations, which
// are the same in every run.
//
// Usage: NAME_fuzz_test CORPUS_FOLDER [MUTATIONS]
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace {

constexpr double kMostSeconds = 20;  // of one input; sanitizers and other work on the machine included
constexpr size_t kMostBytes = 4096;  // of one mutation

using Random = std::mt19937_64;  // the standard fixes its numbers

// The input that is running, for the last words of a target that ends the program.
std::string input_name;   // NOLINT
std::string input_bytes;  // NOLINT

void last_words(int signal) {
  const char* text = input_name.c_str();
  (void)!write(STDERR_FILENO, text, std::strlen(text));
  (void)!write(STDERR_FILENO, ": the target ends the program\n", 30);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

size_t below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// Pieces that break readers of numbers, brackets and texts.
constexpr std::array<std::string_view, 20> kPieces = {"0",
                                                      "-1",
                                                      "9223372036854775807",
                                                      "18446744073709551615",
                                                      "1e308",
                                                      "-0.0",
                                                      "null",
                                                      "[]",
                                                      "{}",
                                                      "\"\"",
                                                      "[[[[[[[[",
                                                      "{\"a\":{\"a\":",
                                                      "\xFF",
                                                      std::string_view("\0\0\0\0", 4),
                                                      "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F",
                                                      "{{",
                                                      "{%",
                                                      "\\u0000",
                                                      "\n",
                                                      "\xF0\x9F\x98\x80"};

void mutate(std::string& text, const std::string& other, Random& random) {
  const size_t at = below(random, text.size() + 1);
  const size_t length = below(random, std::min<size_t>(text.size() - at, 32) + 1);
  switch (random() % 7) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random());
      break;
    case 1:
      if (at < text.size())
        text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << (random() % 8)));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(at, text.substr(at, length));
      break;
    case 4:
      text.insert(at, kPieces[below(random, kPieces.size())]);
      break;
    case 5:
      text.replace(at, length, kPieces[below(random, kPieces.size())]);
      break;
    default:
      text = text.substr(0, at) + other.substr(below(random, other.size() + 1));
  }
  if (text.size() > std::max(kMostBytes, other.size())) text.resize(std::max(kMostBytes, other.size()));
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", input_name.c_str(), why.c_str());
  const std::filesystem::path kept = std::filesystem::temp_directory_path() / "finding";
  std::ofstream(kept, std::ios::binary) << input_bytes;
  std::fprintf(stderr, "the input is in %s\n", kept.c_str());
  std::exit(1);
}

void run(const std::string& name, const std::string& bytes) {
  input_name = name;
  input_bytes = bytes;
  const double start = cpu_seconds();
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (cpu_seconds() - start > kMostSeconds) fail("takes longer than " + std::to_string(kMostSeconds) + " s");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER [MUTATIONS]\n", argv[0]);
    return 2;
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, last_words);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    std::fprintf(stderr, "%s: the corpus is empty\n", argv[1]);
    return 2;
  }
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    run(path.string(), corpus.back());
  }
  Random random(20240229);
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 0;
  for (int i = 0; i < mutations; ++i) {
    const size_t first = below(random, corpus.size());
    std::string text = corpus[first];
    const std::string& other = corpus[below(random, corpus.size())];
    for (size_t times = 1 + random() % 4; times > 0; --times) mutate(text, other, random);
    run("mutation " + std::to_string(i) + " of " + paths[first].string(), text);
  }
  std::printf("%zu files and %d mutations of them: all read or refused\n", corpus.size(), mutations);
  return 0;
}
