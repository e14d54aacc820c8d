// Package winservice runs the program as a Windows service, when the service
// manager has started it: an ordinary command line, such as "iop node -c
// C:\ProgramData\iop\node.yaml", is a service once it is registered
// (docs/install.md).
//
// A stop asks for the same orderly end as a signal, and is acknowledged while it
// takes its time; a shutdown of Windows has to be over in a few seconds. The log
// goes to the event log, since a service has no stderr. Console signals are not
// listened to: a service is told, too, when a mere user logs off.
//
// What is decided is in serve, and tested everywhere; run_windows.go translates.
package winservice
