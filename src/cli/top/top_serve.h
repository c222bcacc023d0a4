// Serves `plimsoll top --serve`: the screen's content as a page and as metrics, read-only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fleet/top/frame.h"

namespace plimsoll {

struct ServedAddress {
  std::string host = "127.0.0.1";
  int port = 8642;
};
// "8643", "0.0.0.0:80", "[::1]:8642"; empty: the default. Throws UsageError.
ServedAddress read_address(const std::string& text);

struct Served {
  ServedAddress address;
  std::string token;  // that every request must name
  double interval = 2;
  std::function<top::Frame()> next;
  std::function<void()> ready;  // called when the address answers
};

// Serves until a signal ends it. Throws UsageError where the address cannot be had.
void serve(const Served& served);

// The page, which reads /events.
std::string served_page();

}  // namespace plimsoll
