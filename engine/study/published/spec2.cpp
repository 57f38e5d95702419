// Figures of spec 2.
#include "engine/study/published/published.hpp"

namespace troupe {

std::vector<published_figure> spec2_figures() { return {}; }

}  // namespace troupe
