// Package service holds what starts IOP with the machine: systemd units and
// launchd daemons (Windows needs no file). It has no code; its tests keep the
// files in step with the program. How to install them is in docs/install.md.
package service
