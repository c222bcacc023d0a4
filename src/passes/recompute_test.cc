#include "passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
TEST(Recompute, x) {}
