// Figures of spec 1.
#include "engine/study/published/published.hpp"

namespace troupe {

std::vector<published_figure> spec1_figures() { return {}; }

}  // namespace troupe
