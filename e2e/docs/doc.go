// Package docs holds the documents to the tree they describe: links lead
// somewhere, make targets and tests that are named exist.
//
// It owns no document and must not know what they say.
package docs
