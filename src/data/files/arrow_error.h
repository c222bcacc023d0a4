// Turns errors of Arrow and Parquet into errors of ours.
#pragma once

#include <arrow/status.h>
#include <arrow/util/io_util.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "base/system_error.h"

namespace plimsoll {

// Throws StoppedError where the device or the system failed, which says nothing about the file itself.
inline void require_device(const std::string& path, const arrow::Status& status) {
  const int error = arrow::internal::ErrnoFromStatus(status);
  if (error != 0 && is_exhaustion(error))
    throw StoppedError(formatted("{}: cannot be read: {}.", path, std::generic_category().message(error)));
}

// Arrow's reason, for a place before a full stop: on one line, without a full stop of its own.
inline std::string reason_of(const arrow::Status& status) {
  std::string text = status.message();
  while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  return text;
}

}  // namespace plimsoll
