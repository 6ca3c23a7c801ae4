// Containers of C++: spatial indexes, clusters, parsers, books.
#include "sealed.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Point = std::array<double, 3>;

Point any_point() { return {uniform(), uniform(), uniform()}; }

// A tree that halves space; each node is allocated.
struct Half {
    Point at;
    std::unique_ptr<Half> sides[2];
};
std::unique_ptr<Half> halves;

std::unique_ptr<Half> halve(Point *from, Point *to, int axis) {
    if (from == to)
        return nullptr;
    Point *middle = from + (to - from) / 2;
    std::nth_element(from, middle, to,
                     [axis](const Point &a, const Point &b) { return a[axis] < b[axis]; });
    auto node = std::make_unique<Half>();
    node->at = *middle;
    node->sides[0] = halve(from, middle, (axis + 1) % 3);
    node->sides[1] = halve(middle + 1, to, (axis + 1) % 3);
    return node;
}

void nearest(const Half *node, const Point &to, int axis, double &best) {
    if (!node)
        return;
    double distance = 0;
    for (int i = 0; i < 3; i++)
        distance += (node->at[i] - to[i]) * (node->at[i] - to[i]);
    best = std::min(best, distance);
    double off = to[axis] - node->at[axis];
    nearest(node->sides[off > 0].get(), to, (axis + 1) % 3, best);
    if (off * off < best)
        nearest(node->sides[off <= 0].get(), to, (axis + 1) % 3, best);
}

void kd_set_up() {
    std::vector<Point> points(40000);
    std::generate(points.begin(), points.end(), any_point);
    halves = halve(points.data(), points.data() + points.size(), 0);
}

double kd_round() {
    double sum = 0;
    for (int i = 0; i < 8000; i++) {
        double best = 1e9;
        nearest(halves.get(), any_point(), 0, best);
        sum += best;
    }
    return sum;
}

// Rectangles in nodes of sixteen, packed by rows and columns.
struct Box {
    float left, low, right, high;
};
struct Node {
    std::vector<Box> boxes;
    std::vector<std::unique_ptr<Node>> below;
};
std::unique_ptr<Node> rectangles;

Box around(const std::vector<Box> &boxes) {
    Box all = boxes[0];
    for (const Box &b : boxes)
        all = {std::min(all.left, b.left), std::min(all.low, b.low), std::max(all.right, b.right),
               std::max(all.high, b.high)};
    return all;
}

void rectangles_set_up() {
    std::vector<Box> boxes(60000);
    for (Box &b : boxes) {
        float x = uniform(), y = uniform();
        b = {x, y, x + 0.004f * (float)uniform(), y + 0.004f * (float)uniform()};
    }
    std::sort(boxes.begin(), boxes.end(), [](const Box &a, const Box &b) {
        int strip_a = a.left * 60, strip_b = b.left * 60;
        return strip_a != strip_b ? strip_a < strip_b : a.low < b.low;
    });
    std::vector<std::unique_ptr<Node>> level;
    for (size_t i = 0; i < boxes.size(); i += 16) {
        level.push_back(std::make_unique<Node>());
        level.back()->boxes.assign(boxes.begin() + i,
                                   boxes.begin() + std::min(i + 16, boxes.size()));
    }
    while (level.size() > 1) {
        std::vector<std::unique_ptr<Node>> above;
        for (size_t i = 0; i < level.size(); i++) {
            if (i % 16 == 0)
                above.push_back(std::make_unique<Node>());
            above.back()->boxes.push_back(around(level[i]->boxes));
            above.back()->below.push_back(std::move(level[i]));
        }
        level = std::move(above);
    }
    rectangles = std::move(level[0]);
}

int count_in(const Node *node, const Box &q) {
    int n = 0;
    for (size_t i = 0; i < node->boxes.size(); i++) {
        const Box &b = node->boxes[i];
        if (b.left > q.right || b.right < q.left || b.low > q.high || b.high < q.low)
            continue;
        n += node->below.empty() ? 1 : count_in(node->below[i].get(), q);
    }
    return n;
}

double rectangles_round() {
    double sum = 0;
    for (int i = 0; i < 4000; i++) {
        float x = uniform(), y = uniform();
        sum += count_in(rectangles.get(), {x, y, x + 0.02f, y + 0.02f});
    }
    return sum;
}

// Clusters by Lloyd's algorithm; each point is a vector of its own.
std::vector<std::vector<double>> samples, centers;

void clusters_set_up() {
    samples.resize(12000);
    for (auto &s : samples)
        for (int d = 0; d < 12; d++)
            s.push_back(uniform());
    centers.assign(samples.begin(), samples.begin() + 10);
}

double clusters_round() {
    std::vector<std::vector<double>> sums(centers.size(), std::vector<double>(12));
    std::vector<int> counts(centers.size());
    for (const auto &s : samples) {
        size_t best = 0;
        double least = 1e9;
        for (size_t c = 0; c < centers.size(); c++) {
            double distance = 0;
            for (size_t d = 0; d < s.size(); d++)
                distance += (s[d] - centers[c][d]) * (s[d] - centers[c][d]);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        counts[best]++;
        for (size_t d = 0; d < s.size(); d++)
            sums[best][d] += s[d];
    }
    for (size_t c = 0; c < centers.size(); c++)
        for (size_t d = 0; d < 12 && counts[c]; d++)
            centers[c][d] = sums[c][d] / counts[c];
    return centers[0][0];
}

// A text of objects, arrays and numbers is parsed into a tree, summed up, and discarded.
struct Value {
    double number = 0;
    std::string text;
    std::vector<std::unique_ptr<Value>> items;
    std::vector<std::pair<std::string, std::unique_ptr<Value>>> members;
};
std::string document;

void write_value(int depth) {
    if (depth == 0) {
        std::string note = "\"note " + std::to_string(below(9999)) + '"';
        document += below(2) ? std::to_string(below(100000)) : note;
        return;
    }
    bool object = depth % 2;
    document += object ? '{' : '[';
    for (int i = 0; i < 6; i++) {
        if (i)
            document += ", ";
        if (object)
            document += "\"field" + std::to_string(i) + "\": ";
        write_value(depth - 1);
    }
    document += object ? '}' : ']';
}

struct Parser {
    const char *at;

    void space() {
        while (*at == ' ' || *at == ',' || *at == ':')
            at++;
    }

    std::string string() {
        const char *begin = ++at;
        while (*at != '"')
            at++;
        return std::string(begin, at++);
    }

    std::unique_ptr<Value> value() {
        auto v = std::make_unique<Value>();
        space();
        if (*at == '{') {
            for (at++, space(); *at != '}'; space()) {
                std::string name = string();
                v->members.emplace_back(std::move(name), value());
            }
            at++;
        } else if (*at == '[') {
            for (at++, space(); *at != ']'; space())
                v->items.push_back(value());
            at++;
        } else if (*at == '"') {
            v->text = string();
        } else {
            while (*at >= '0' && *at <= '9')
                v->number = v->number * 10 + (*at++ - '0');
        }
        return v;
    }
};

double total(const Value &v) {
    double sum = v.number + v.text.size();
    for (const auto &i : v.items)
        sum += total(*i);
    for (const auto &m : v.members)
        sum += total(*m.second);
    return sum;
}

void json_set_up() { write_value(6); }

double json_round() {
    Parser parser{document.c_str()};
    return total(*parser.value());
}

// Orders by price, and by number.
struct Order {
    int number, amount;
};
std::map<int, std::list<Order>> book;
std::unordered_map<int, std::pair<int, std::list<Order>::iterator>> by_number;
std::vector<int> open_orders;
int last_order;

void enter() {
    int price = 50000 + (int)(8000 * (uniform() + uniform() - 1));
    auto &queue = book[price];
    queue.push_back({++last_order, 1 + (int)below(100)});
    by_number[last_order] = {price, std::prev(queue.end())};
    open_orders.push_back(last_order);
}

void book_set_up() {
    for (int i = 0; i < 30000; i++)
        enter();
}

double book_round() {
    double sum = 0;
    for (int i = 0; i < 30000; i++) {
        size_t which = below(open_orders.size());
        auto found = by_number.find(open_orders[which]);
        auto at = book.find(found->second.first);
        sum += found->second.second->amount;
        at->second.erase(found->second.second);
        if (at->second.empty())
            book.erase(at);
        by_number.erase(found);
        open_orders[which] = open_orders.back();
        open_orders.pop_back();
        enter();
    }
    return sum;
}

const kind kinds[] = {
    {"kd-tree", kd_set_up, kd_round},         {"r-tree", rectangles_set_up, rectangles_round},
    {"k-means", clusters_set_up, clusters_round}, {"json", json_set_up, json_round},
    {"order-book", book_set_up, book_round},
};

} // namespace

int main(int argc, char **argv) { return RUN(kinds); }
