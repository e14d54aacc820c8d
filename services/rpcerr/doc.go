// Package rpcerr is the only place where a domain error gets a Connect code.
//
// What it does not know reaches clients as one fixed sentence. Whoever passes such
// an error in logs it in full.
package rpcerr
