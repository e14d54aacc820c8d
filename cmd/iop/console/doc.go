// Package console turns what an Edge says of itself into text for a terminal:
// lines that fit a width in cells, with nothing in them that a terminal would
// take for an order. It shows what messages hold, in their own words, and knows
// neither how they were fetched nor what decides admission.
package console
