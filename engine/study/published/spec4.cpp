// Figures of spec 4.
#include "engine/study/published/published.hpp"

namespace troupe {

std::vector<published_figure> spec4_figures() { return {}; }

}  // namespace troupe
