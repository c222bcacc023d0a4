// Requests to the hub: its address and token, redirections, errors in words, and a second try where that
// helps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "hub/curl.h"
#include "recipe/hub.h"

namespace plimsoll::hub {

struct HubSettings {
  std::string endpoint;  // "https://huggingface.co", without a slash at its end
  std::string token;     // "" where there is no token
};

// HF_ENDPOINT; HF_TOKEN, or the token that `hf auth login` has left (HF_TOKEN_PATH, HF_HOME/token). Throws
// UsageError where HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids connections, or the address is not valid.
HubSettings hub_settings();

// The address of a piece of content, and the function that receives it.
struct Download {
  std::string path;  // behind the endpoint, percent-encoded
  std::string of;    // what messages call it: "Qwen/Qwen2.5-7B"
  // Bytes that are there already, at each try.
  std::function<int64_t()> offset = [] { return int64_t{0}; };
  // The bytes from offset() on; `restarted` with the first piece where the server begins at 0 all the same.
  std::function<void(bool restarted, std::string_view piece)> take;
};

class HubClient {
 public:
  // `say` is called with a line about each wait.
  HubClient(HubSettings settings, std::function<void(const std::string&)> say);

  // Tries again, from where it is, as long as something comes or at most five times in a row; waits for the
  // time in Retry-After, at most five minutes. Throws UsageError (unknown, private, gated), StoppedError.
  void get(const Download& download);
  // A whole answer of at most `most` bytes.
  [[nodiscard]] std::string text(const std::string& path, const std::string& of, size_t most);
  [[nodiscard]] const std::string& endpoint() const { return settings_.endpoint; }

 private:
  [[nodiscard]] HttpResponse follow(const Download& download, int64_t from);
  [[noreturn]] void refuse(const HttpResponse& response, const Download& download) const;

  HubSettings settings_;
  std::function<void(const std::string&)> say_;
  Curl curl_;
  bool has_answered_ = false;
};

// "a b/c" -> "a%20b/c"
std::string url_path(std::string_view path);

}  // namespace plimsoll::hub
