// The code of nlohmann's two JSON classes, once for all (precompiled.h).
#include <nlohmann/json.hpp>

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;
