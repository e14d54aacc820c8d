package main

import "github.com/spf13/cobra"

// noArgs is for commands whose file is named by a flag, which is easily left out.
func noArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.Flags().Lookup("config") == nil:
		return usagef("%q is too much: %s takes flags only", args[0], c.CommandPath())
	case c.HasSubCommands():
		return usagef("%q is no subcommand of %s; a file is named by -c, as in %s -c %s", args[0], c.CommandPath(), c.CommandPath(), args[0])
	}
	return usagef("%q is too much: a file is named by -c, as in %s -c %s", args[0], c.CommandPath(), args[0])
}

// oneArg wants a single argument, which has a name and an example.
func oneArg(name, example string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usagef("%s needs one %s, as in %s %s; found %d", c.CommandPath(), name, c.CommandPath(), example, len(args))
	}
}
