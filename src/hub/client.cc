#include "hub/client.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/regular_file.h"
#include "base/strings.h"

namespace plimsoll::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHub = "https://huggingface.co";
constexpr int kMostRedirections = 10;
constexpr int kMostFailures = 5;       // in a row, with nothing received between them
constexpr int64_t kLongestWait = 300;  // seconds
constexpr int64_t kLongestToken = 4096;

std::string variable(const char* name) { return std::string(trim(environment(name))); }

bool is_set(const char* name) {
  std::string value = variable(name);
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string stored_token() {
  fs::path path = variable("HF_TOKEN_PATH");
  if (path.empty()) path = hub_home() / "token";
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return "";
  return std::string(trim(read_start(path, kLongestToken)));
}

std::string hub_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (std::string token = variable(name); !token.empty()) return token;
  return stored_token();
}

// "https://host:port" of an address.
std::string origin_of(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return "";
  return url.substr(0, std::min(url.find_first_of("/?#", scheme + 3), url.size()));
}

bool may_pass(const HttpResponse& response) {
  constexpr std::array kPassing = {408, 425, 429, 500, 502, 503, 504};
  return std::find(kPassing.begin(), kPassing.end(), response.status) != kPassing.end();
}

std::optional<int64_t> asked_wait(const HttpResponse& response) {
  const std::string text = response.header("retry-after");
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::atoll(text.c_str());
}

// Failures one after the other, with nothing received between them.
class Failures {
 public:
  explicit Failures(const std::function<void(const std::string&)>& say) : say_(say) {}
  void forget() { count_ = 0; }
  // Waits for the next try; throws where no try is left.
  void wait_after(const std::string& what, std::optional<int64_t> requested) {
    const int64_t seconds = requested.value_or(count_ == 0 ? 0 : int64_t{1} << (count_ - 1));
    if (++count_ >= kMostFailures || seconds > kLongestWait)
      throw StoppedError(
          formatted("{}{}. What was received is kept: the same command continues from there", what,
                    seconds > kLongestWait ? formatted("; it asks to wait for {} s", seconds) : ""));
    say_(formatted("{}; trying again{}", what, seconds > 0 ? formatted(" in {} s", seconds) : ""));
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
  }

 private:
  const std::function<void(const std::string&)>& say_;
  int count_ = 0;
};

}  // namespace

HubSettings hub_settings() {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
    if (is_set(name))
      throw UsageError(formatted("fetch opens a connection to the hub, and {}={} forbids that: unset it",
                                 name, variable(name)));
  HubSettings settings{variable("HF_ENDPOINT"), hub_token()};
  if (settings.endpoint.empty()) settings.endpoint = kHub;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const bool is_address =
      settings.endpoint.starts_with("https://") || settings.endpoint.starts_with("http://");
  if (!is_address || settings.endpoint.find('@') != std::string::npos)
    throw UsageError(
        formatted("HF_ENDPOINT={}: is not an address such as {}", printable(settings.endpoint), kHub));
  if (printable(settings.token) != settings.token || settings.token.find(' ') != std::string::npos)
    throw UsageError(
        "the token (HF_TOKEN, or what `hf auth login` has stored) holds blanks or control characters; copy "
        "it again");
  return settings;
}

HubClient::HubClient(HubSettings settings, std::function<void(const std::string&)> say)
    : settings_(std::move(settings)), say_(std::move(say)) {}

HttpResponse HubClient::follow(const Download& download, int64_t from) {
  std::string url = settings_.endpoint + download.path;
  const std::string home = origin_of(url);
  for (int hop = 0; hop < kMostRedirections; ++hop) {
    HttpRequest request{.url = url, .headers = {}, .from = from};
    // Storage that the hub sends us to has signed addresses: the token is the hub's alone.
    if (!settings_.token.empty() && origin_of(url) == home)
      request.headers.push_back("Authorization: Bearer " + settings_.token);
    bool first = true;
    HttpResponse response = curl_.get(request, [&](int status, std::string_view piece) {
      download.take(first && from > 0 && status != 206, piece);
      first = false;
    });
    has_answered_ = true;
    if (response.status < 300 || response.status > 399 || response.redirect.empty()) return response;
    if (home.starts_with("https:") && !response.redirect.starts_with("https:"))
      throw StoppedError(formatted("{}: {} redirects to {}, which is not encrypted (https)", download.of,
                                   home, printable(origin_of(response.redirect))));
    url = response.redirect;
  }
  throw StoppedError(formatted("{}: the hub redirects more than {} times", download.of, kMostRedirections));
}

void HubClient::refuse(const HttpResponse& response, const Download& download) const {
  const std::string status = std::to_string(response.status);
  std::string reason = response.header("x-error-message");
  reason = reason.empty() ? "" : formatted(" ({})", printable(reason));
  const std::string start =
      formatted("{}: {} answers {}{}: ", download.of, settings_.endpoint, status, reason);
  const bool gated = response.header("x-error-code") == "GatedRepo" || response.status == 403;
  const bool is_dataset =
      download.path.starts_with("/api/datasets/") || download.path.starts_with("/datasets/");
  const std::string other_kind = is_dataset ? "" : "; a data set is fetched with --dataset";
  if (gated && !settings_.token.empty())
    throw UsageError(formatted("{}the account of this token may not read it; accept its conditions at {}{}{}",
                               start, settings_.endpoint, is_dataset ? "/datasets/" : "/", download.of));
  if (response.status == 401 || gated)
    throw UsageError(
        start +
        (settings_.token.empty()
             ? "there is no repository of this name, or it is private or gated; if it is, set HF_TOKEN to a "
               "token of an account that may read it"
             : "there is no repository of this name, or the token (HF_TOKEN) is not valid") +
        other_kind);
  if (response.status == 404)
    throw UsageError(formatted("{}there is no repository of this name, or no such revision or file in it{}",
                               start, other_kind));
  throw StoppedError(start + "fetch cannot go on with this answer");
}

void HubClient::get(const Download& wanted) {
  Failures failures(say_);
  Download download = wanted;
  download.take = [&](bool restarted, std::string_view piece) {
    failures.forget();
    wanted.take(restarted, piece);
  };
  while (true) {
    try {
      const HttpResponse response = follow(download, download.offset());
      if (response.status >= 200 && response.status <= 299) return;
      if (response.status == 416) return;  // nothing lies behind what is there: its checksum decides
      if (!may_pass(response)) refuse(response, download);
      failures.wait_after(formatted("{}: {} answers {}{}", download.of, settings_.endpoint, response.status,
                                    response.status == 429 ? " (too many requests)" : ""),
                          asked_wait(response));
    } catch (const ConnectionError& error) {
      if (!error.reached_server && !has_answered_)
        throw StoppedError(
            std::string(error.what()) +
            ". Where there is no network, copy the model's folder from another machine; HF_ENDPOINT names "
            "another hub, https_proxy a proxy");
      failures.wait_after(error.what(), std::nullopt);
    }
  }
}

std::string HubClient::text(const std::string& path, const std::string& of, size_t most) {
  std::string text;
  const auto begin = [&] {  // at each try
    text.clear();
    return int64_t{0};
  };
  get({.path = path, .of = of, .offset = begin, .take = [&](bool, std::string_view piece) {
         if (text.size() + piece.size() > most) throw StoppedError(of + ": the hub's answer is too long");
         text += piece;
       }});
  return text;
}

std::string url_path(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string url;
  for (const char c : path) {
    const auto octet = static_cast<unsigned char>(c);
    if (std::isalnum(octet) != 0 || std::string_view("-_.~/").find(c) != std::string_view::npos) {
      url += c;
      continue;
    }
    url += '%';
    url += kDigits[octet >> 4];
    url += kDigits[octet & 15];
  }
  return url;
}

}  // namespace plimsoll::hub
