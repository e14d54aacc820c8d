// Package intake bounds the memory of request bodies that are still on their way,
// over all requests of an Edge together: clients that send large bodies slowly
// would otherwise hold as much as they like.
//
// Bodies that have arrived are bounded elsewhere: by who may wait and by who may
// run. The package knows neither HTTP nor what a refusal looks like.
package intake
