#include "cli/top/top_serve.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/page.h"
#include "base/print.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/top/top_page.h"
#include "fleet/top/metrics.h"
#include "train/run_signals.h"

namespace plimsoll {
namespace {

constexpr size_t kMostReaders = 32;
constexpr size_t kMostConnections = 256;         // with those that have sent no request yet
constexpr int kIdleSeconds = 10;                 // a connection that sends nothing for so long is ended
constexpr size_t kMostUnread = size_t{1} << 20;  // of a client that does not read its answer
constexpr timeval kSignalTick = {0, 200'000};

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* value) const {
    Free(value);
  }
};
using Buffer = std::unique_ptr<evbuffer, Freed<evbuffer_free>>;

Buffer buffer_of(const std::string& text) {
  Buffer buffer(evbuffer_new());
  evbuffer_add(buffer.get(), text.data(), text.size());
  return buffer;
}

// Takes the same time for every wrong token.
bool same(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

// `?token=..`, or as Prometheus has it: `Authorization: Bearer ..`.
std::string token_of(evhttp_request* request) {
  const char* bearer = evhttp_find_header(evhttp_request_get_input_headers(request), "Authorization");
  if (bearer != nullptr && std::string_view(bearer).starts_with("Bearer ")) return bearer + 7;
  const char* query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
  if (query == nullptr) return "";
  evkeyvalq values{};
  if (evhttp_parse_query_str(query, &values) != 0) return "";
  const char* found = evhttp_find_header(&values, "token");
  std::string token = found == nullptr ? "" : found;
  evhttp_clear_headers(&values);
  return token;
}

class Server {
 public:
  explicit Server(const Served& served) : served_(served) {
    // All methods: the library's own answer does not name those that are served.
    evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                                EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS |
                                                EVHTTP_REQ_PATCH);
    evhttp_set_max_headers_size(http_.get(), 16 << 10);
    evhttp_set_max_body_size(http_.get(), 64 << 10);
    evhttp_set_timeout(http_.get(), kIdleSeconds);
    // Called for each connection that is accepted; null: the library makes what it needs for it.
    evhttp_set_bevcb(
        http_.get(),
        [](event_base*, void* self) -> bufferevent* {
          static_cast<Server*>(self)->end_oldest();
          return nullptr;
        },
        this);
    evhttp_set_gencb(
        http_.get(),
        [](evhttp_request* request, void* self) {
          static_cast<Server*>(self)->guarded([&](Server& server) { server.answer(request); });
        },
        this);
    const ServedAddress& address = served.address;
    if (evhttp_bind_socket(http_.get(), address.host.c_str(), static_cast<uint16_t>(address.port)) != 0)
      throw UsageError(formatted("--serve {}:{}: cannot be opened: {}", printable(address.host), address.port,
                                 std::strerror(errno)));
  }
  ~Server() {
    for (const Reader& one : readers_) evhttp_connection_set_closecb(one.connection, nullptr, nullptr);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void run() {
    const timeval interval = {
        static_cast<time_t>(served_.interval),
        static_cast<suseconds_t>(
            (served_.interval - static_cast<double>(static_cast<time_t>(served_.interval))) * 1e6)};
    const auto every = [&](const timeval& time, void (*call)(Server&)) {
      using Call = std::pair<Server*, void (*)(Server&)>;
      calls_.push_back({this, call});
      Event event(event_new(
          base_.get(), -1, EV_PERSIST,
          [](evutil_socket_t, short, void* given) {
            const auto* one = static_cast<Call*>(given);
            one->first->guarded(one->second);
          },
          &calls_.back()));
      event_add(event.get(), &time);
      events_.push_back(std::move(event));
    };
    every(interval, [](Server& self) { self.send_frame(); });
    every(kSignalTick, [](Server& self) {
      if (stop_request() != nullptr) event_base_loopbreak(self.base_.get());
    });
    event_base_dispatch(base_.get());
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  // Calls from libevent, through whose frames nothing may be thrown: run() throws it once the loop has ended.
  template <class Call>
  void guarded(const Call& call) {
    try {
      call(*this);
    } catch (...) {
      failed_ = std::current_exception();
      event_base_loopbreak(base_.get());
    }
  }

  // A request that has no end. Its connection lets it go when the other side is gone, so both are known.
  struct Reader {
    evhttp_request* request;
    evhttp_connection* connection;
  };
  struct Connection {
    ino_t socket = 0;
    int64_t number = 0;  // in the order in which they came
  };
  using Event = std::unique_ptr<event, Freed<event_free>>;

  // One look for all who ask within an interval, however many they are.
  const top::Frame& frame() {
    timeval now{};
    evutil_gettimeofday(&now, nullptr);
    const double seconds = static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_usec);
    if (!frame_ || seconds > looked_ + 0.9 * served_.interval || seconds < looked_) {
      frame_ = served_.next();
      looked_ = seconds;
    }
    return *frame_;
  }

  // Ends the oldest connection where there are too many: strangers who hold theirs lock no other reader out.
  // The library neither counts nor lists them, so the open sockets with another side are looked at.
  void end_oldest() {
    constexpr int kGap = 64;  // new files get the lowest free number
    for (int file = 3, last = file; file < last + kGap; ++file) {
      sockaddr_storage other{};
      socklen_t size = sizeof other;
      struct stat now {};
      if (getpeername(file, reinterpret_cast<sockaddr*>(&other), &size) != 0 || fstat(file, &now) != 0) {
        connections_.erase(file);
        if (fcntl(file, F_GETFD) >= 0) last = file;
        continue;
      }
      last = file;
      Connection& known = connections_[file];
      if (known.socket != now.st_ino) known = {now.st_ino, ++accepted_};
    }
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const size_t most = std::min<size_t>(kMostConnections, files.rlim_cur / 2);
    while (connections_.size() > most) {
      auto oldest = connections_.end();
      for (auto at = connections_.begin(); at != connections_.end(); ++at)
        if (!is_reader(at->first) &&
            (oldest == connections_.end() || at->second.number < oldest->second.number))
          oldest = at;
      if (oldest == connections_.end()) return;
      shutdown(oldest->first, SHUT_RDWR);  // the library finds its end, and closes it
      connections_.erase(oldest);
    }
  }
  [[nodiscard]] bool is_reader(int file) const {
    return std::any_of(readers_.begin(), readers_.end(), [&](const Reader& one) {
      return bufferevent_getfd(evhttp_connection_get_bufferevent(one.connection)) == file;
    });
  }

  void answer(evhttp_request* request) {
    const char* path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    evkeyvalq* headers = evhttp_request_get_output_headers(request);
    for (const auto& [name, value] :
         {std::pair("X-Content-Type-Options", "nosniff"), std::pair("Referrer-Policy", "no-referrer"),
          std::pair("Cache-Control", "no-store"), std::pair("X-Frame-Options", "DENY"),
          std::pair("Content-Security-Policy",
                    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
                    "'self'")})
      evhttp_add_header(headers, name, value);
    const evhttp_cmd_type method = evhttp_request_get_command(request);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
      evhttp_add_header(headers, "Allow", "GET, HEAD");
      return send(request, 405, "text/plain; charset=utf-8", "This page is read-only.\n");
    }
    if (!same(token_of(request), served_.token))
      return send(request, 401, "text/plain; charset=utf-8",
                  "This page needs the token that plimsoll top --serve has printed: ?token=...\n");
    const std::string_view requested = path == nullptr ? "" : path;
    if (requested == "/" || requested.empty())
      return send(request, 200, "text/html; charset=utf-8", served_page());
    if (requested == "/frame.json")
      return send(request, 200, "application/json", json_text(top::frame_json(frame()), -1));
    if (requested == "/metrics")
      return send(request, 200, "text/plain; version=0.0.4; charset=utf-8", top::metrics_text(frame()));
    if (requested == "/events") return begin_events(request);
    send(request, 404, "text/plain; charset=utf-8", "There are /, /events, /frame.json and /metrics.\n");
  }

  static void send(evhttp_request* request, int code, const char* type, const std::string& text) {
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", type);
    const Buffer body = buffer_of(text);
    evhttp_send_reply(request, code, nullptr, body.get());
  }

  // Server-sent events: a frame at once, and one for each interval.
  void begin_events(evhttp_request* request) {
    if (readers_.size() >= kMostReaders)
      return send(request, 503, "text/plain; charset=utf-8", "Too many clients are connected already.\n");
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/event-stream");
    evhttp_connection_set_closecb(
        evhttp_request_get_connection(request),
        [](evhttp_connection* closed, void* self) { static_cast<Server*>(self)->forget(closed); }, this);
    evhttp_send_reply_start(request, 200, nullptr);
    // The connection will send no more.
    bufferevent_set_timeouts(evhttp_connection_get_bufferevent(evhttp_request_get_connection(request)),
                             nullptr, nullptr);
    readers_.push_back({request, evhttp_request_get_connection(request)});
    send_event(request);
  }

  void forget(const evhttp_connection* closed) {
    readers_.remove_if([&](const Reader& one) {
      if (one.connection != closed) return false;
      if (evhttp_request_get_connection(one.request) == nullptr) evhttp_request_free(one.request);
      return true;
    });
  }

  void send_event(evhttp_request* reader) {
    const Buffer chunk =
        buffer_of(formatted("data: {}\n\n", trimmed(json_text(top::frame_json(frame()), -1))));
    evhttp_send_reply_chunk(reader, chunk.get());
  }

  static std::string trimmed(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

  void send_frame() {
    (void)frame();                           // also without a reader: it notices a queue that was moved
    const std::list<Reader> all = readers_;  // a connection that is ended takes itself out
    for (const Reader& one : all) {
      evbuffer* unread = bufferevent_get_output(evhttp_connection_get_bufferevent(one.connection));
      if (evbuffer_get_length(unread) > kMostUnread) {
        evhttp_connection_free(one.connection);
      } else {
        send_event(one.request);
      }
    }
  }

  const Served& served_;
  std::unique_ptr<event_base, Freed<event_base_free>> base_{event_base_new()};
  std::list<Reader> readers_;
  std::map<int, Connection> connections_;  // by their files
  int64_t accepted_ = 0;
  std::list<std::pair<Server*, void (*)(Server&)>> calls_;
  std::list<Event> events_;
  std::optional<top::Frame> frame_;
  double looked_ = 0;
  std::exception_ptr failed_;
  std::unique_ptr<evhttp, Freed<evhttp_free>> http_{evhttp_new(base_.get())};
};

}  // namespace

ServedAddress read_address(const std::string& text) {
  ServedAddress address;
  if (text.empty()) return address;
  const size_t colon = text.rfind(':');
  std::string port = text;
  if (colon != std::string::npos) {
    address.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  address.port = digits ? std::stoi(port) : 0;
  if (address.host.empty() || address.port < 1 || address.port > 65535)
    throw UsageError(formatted("--serve: expected PORT or ADDRESS:PORT, found '{}'", printable(text)));
  return address;
}

void serve(const Served& served) {
  Server server(served);
  served.ready();
  server.run();
}

std::string served_page() { return page::head("Queue", kTopStyle) + kTopBody + page::end("{}", kTopScript); }

}  // namespace plimsoll
