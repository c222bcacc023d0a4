#include "hub/curl.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>

#include "base/environment.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/shared_library.h"
#include "base/strings.h"

namespace plimsoll::hub {
namespace {

// Numbers of libcurl's interface, which has kept them since 7.16 (curl/curl.h): libcurl's headers are not
// needed to build.
enum Option : int {
  kLowSpeedLimit = 19,
  kLowSpeedTime = 20,
  kNoProgress = 43,
  kFollowLocation = 52,
  kConnectTimeout = 78,
  kNoSignal = 99,
  kProtocols = 181,
  kWriteData = 10001,
  kUrl = 10002,
  kErrorBuffer = 10010,
  kUserAgent = 10018,
  kHttpHeader = 10023,
  kHeaderData = 10029,
  kCaInfo = 10065,
  kWriteFunction = 20011,
  kHeaderFunction = 20079
};
constexpr int kResponseCode = 0x200002, kRedirectUrl = 0x10001F;
constexpr long kHttpAndHttps = 3;

// Codes of libcurl for: no address, no answer, a broken connection.
constexpr std::array kNotReached = {5, 6, 7};
constexpr std::array kBroken = {16, 18, 28, 35, 52, 55, 56, 92};
constexpr int kBadCertificate = 60;

constexpr long kConnectSeconds = 30, kSilentSeconds = 60;
constexpr size_t kErrorText = 4096;

using Handle = void*;
using HeaderList = void*;

template <size_t n>
bool is_among(const std::array<int, n>& codes, int code) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

// One request as the callbacks see it.
struct Exchange {
  const TakePiece& take;
  HttpResponse response;
  std::exception_ptr thrown;
};

void read_header(HttpResponse& response, std::string_view line) {
  line = trim(line);
  if (line.starts_with("HTTP/")) {  // of the answer itself, after a proxy's or 100 Continue
    response.headers.clear();
    const size_t blank = line.find(' ');
    response.status =
        blank == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(blank + 1)).c_str());
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  response.headers[name] = trim(line.substr(colon + 1));
}

size_t on_header(const char* text, size_t size, size_t count, void* to) {
  read_header(static_cast<Exchange*>(to)->response, {text, size * count});
  return size * count;
}

// No exception passes through libcurl, which is C: it is kept, and the transfer ends.
size_t on_body(const char* text, size_t size, size_t count, void* to) {
  Exchange& exchange = *static_cast<Exchange*>(to);
  const std::string_view piece(text, size * count);
  HttpResponse& response = exchange.response;
  if (response.status < 200 || response.status > 299) {
    response.error_text += piece.substr(0, kErrorText - std::min(kErrorText, response.error_text.size()));
    return piece.size();
  }
  try {
    exchange.take(response.status, piece);
  } catch (...) {
    exchange.thrown = std::current_exception();
    return 0;
  }
  return piece.size();
}

// Certificates of a company's own proxy: where other tools find them.
std::string certificates() {
  for (const char* name : {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"})
    if (std::string value = environment(name); !value.empty()) return value;
  return "";
}

}  // namespace

struct Curl::Library {
  Handle (*init)() = nullptr;
  int (*set)(Handle, int, ...) = nullptr;
  int (*perform)(Handle) = nullptr;
  int (*info)(Handle, int, ...) = nullptr;
  void (*reset)(Handle) = nullptr;
  void (*cleanup)(Handle) = nullptr;
  const char* (*error)(int) = nullptr;
  HeaderList (*append)(HeaderList, const char*) = nullptr;
  void (*free_list)(HeaderList) = nullptr;
  Handle handle = nullptr;
  std::string certificates;

  // False where the library lacks one of the functions.
  bool find(void* opened) {
    const auto get = [&](auto& function, const char* name) { return find_function(opened, name, function); };
    return get(init, "curl_easy_init") && get(set, "curl_easy_setopt") && get(perform, "curl_easy_perform") &&
           get(info, "curl_easy_getinfo") && get(reset, "curl_easy_reset") &&
           get(cleanup, "curl_easy_cleanup") && get(error, "curl_easy_strerror") &&
           get(append, "curl_slist_append") && get(free_list, "curl_slist_free_all");
  }
  // The handle keeps its connections between requests.
  void prepare(const HttpRequest& request, Exchange& exchange, HeaderList headers, char* said) {
    reset(handle);
    set(handle, kUrl, request.url.c_str());
    set(handle, kProtocols, kHttpAndHttps);
    set(handle, kFollowLocation, 0L);
    set(handle, kNoSignal, 1L);
    set(handle, kNoProgress, 1L);
    set(handle, kConnectTimeout, kConnectSeconds);
    set(handle, kLowSpeedLimit, 1L);
    set(handle, kLowSpeedTime, kSilentSeconds);
    set(handle, kUserAgent, "plimsoll");
    set(handle, kErrorBuffer, said);
    set(handle, kHttpHeader, headers);
    set(handle, kHeaderFunction, &on_header);
    set(handle, kHeaderData, static_cast<void*>(&exchange));
    set(handle, kWriteFunction, &on_body);
    set(handle, kWriteData, static_cast<void*>(&exchange));
    if (!certificates.empty()) set(handle, kCaInfo, certificates.c_str());
  }
  [[noreturn]] void fail(int code, const std::string& said, const std::string& url) const {
    const std::string reason = printable(said.empty() ? error(code) : said);
    const std::string where = printable(url.substr(0, url.find('?'))) + ": ";
    if (code == kBadCertificate)
      throw StoppedError(
          formatted("{}{} (SSL_CERT_FILE names the certificates of a company's proxy)", where, reason));
    if (is_among(kNotReached, code)) throw ConnectionError(where + reason, false);
    if (is_among(kBroken, code)) throw ConnectionError(where + reason, true);
    throw StoppedError(where + reason);
  }
};

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Curl::Curl() : library_(std::make_unique<Library>()) {
  const std::string named = environment("PLIMSOLL_CURL");
  const std::vector<std::string> names =
      named.empty() ? std::vector<std::string>{"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"}
                    : std::vector<std::string>{named};
  void* opened = nullptr;
  std::string why;
  for (const std::string& name : names)
    if (opened == nullptr) opened = open_library(name, why);
  if (opened == nullptr || !library_->find(opened))
    throw UsageError(formatted(
        "fetch needs libcurl, and {} is not installed: install it (Debian, Ubuntu: apt-get install "
        "libcurl4; Fedora: dnf install libcurl), or copy the model's folder from a machine that has it",
        names.front()));
  library_->handle = library_->init();
  check_internal(library_->handle != nullptr, "libcurl makes no handle");
  library_->certificates = certificates();
}

Curl::~Curl() {
  if (library_->handle != nullptr) library_->cleanup(library_->handle);
}

HttpResponse Curl::get(const HttpRequest& request, const TakePiece& take) {
  Library& curl = *library_;
  Exchange exchange{take, {}, nullptr};
  std::array<char, 256> said{};  // libcurl's CURL_ERROR_SIZE
  const auto free_list = [&](HeaderList list) { curl.free_list(list); };
  std::unique_ptr<void, decltype(free_list)> headers(nullptr, free_list);
  std::vector<std::string> lines = request.headers;
  // A range of our own: by libcurl's option a server that knows no ranges is an error.
  if (request.from > 0) lines.push_back(formatted("Range: bytes={}-", request.from));
  for (const std::string& line : lines) {
    HeaderList longer = curl.append(headers.get(), line.c_str());
    (void)headers.release();
    headers.reset(longer);
  }
  curl.prepare(request, exchange, headers.get(), said.data());
  const int code = curl.perform(curl.handle);
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  if (code != 0) curl.fail(code, said.data(), request.url);
  long status = 0;
  const char* redirect = nullptr;
  curl.info(curl.handle, kResponseCode, &status);
  curl.info(curl.handle, kRedirectUrl, &redirect);
  exchange.response.status = static_cast<int>(status);
  if (redirect != nullptr) exchange.response.redirect = redirect;
  return exchange.response;
}

}  // namespace plimsoll::hub
