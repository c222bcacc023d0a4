// Turns failed system calls into errors that tell the user what to do.
#pragma once

#include <cerrno>

namespace plimsoll {

// Says that something has run out or that a device gave up (StoppedError), rather than that the name was
// wrong.
inline bool is_exhaustion(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO || error == EROFS || error == EFBIG ||
         error == EMFILE || error == ENFILE || error == ENOMEM;
}

}  // namespace plimsoll
