// HTTP by libcurl, which is opened when it is first needed, so that no other command looks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace plimsoll::hub {

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  int64_t from = 0;                  // offset in bytes that a ranged request begins at
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string redirect;                        // absolute; "" where the answer is no redirection
  std::string error_text;                      // the start of the body where the status is not 2xx

  // The value of a header, or "".
  [[nodiscard]] std::string header(const std::string& name) const;
};

// The connection failed, or broke in the middle of an answer.
struct ConnectionError : StoppedError {
  ConnectionError(const std::string& message, bool found) : StoppedError(message), reached_server(found) {}
  bool reached_server;  // false: no address, or no server answers there
};

// Called with each piece of a 2xx answer's body; `status` is that of the answer. May throw.
using TakePiece = std::function<void(int status, std::string_view piece)>;

class Curl {
 public:
  // Opens "libcurl.so.4" or one of the names of other builds; PLIMSOLL_CURL names another file. Throws
  // UsageError that says what to install where libcurl is missing.
  Curl();
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  ~Curl();

  // Follows no redirection. Proxies are those of the environment (https_proxy, no_proxy, ...). Throws
  // ConnectionError, StoppedError for certificates that do not hold, and what `take` throws.
  [[nodiscard]] HttpResponse get(const HttpRequest& request, const TakePiece& take);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace plimsoll::hub
