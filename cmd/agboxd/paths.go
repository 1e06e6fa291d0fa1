package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/config"
)

// Flags that select whose files a command uses.
const (
	systemFlag = "system"
	userFlag   = "user"
)

// systemPaths are the paths of the system service. Tests replace them.
var systemPaths = config.SystemPaths()

func addSiteFlags(root *cobra.Command) {
	root.PersistentFlags().Bool(systemFlag, false, "use the files of the system service: "+systemPaths.DataDir+", "+systemPaths.ConfigFile)
	root.PersistentFlags().Bool(userFlag, false, "use the files that the XDG variables and HOME name")
	root.MarkFlagsMutuallyExclusive(systemFlag, userFlag)
}

// resolved returns the paths that cmd uses. A daemon without a flag uses those of its environment. Other commands of root use those of the
// system service if it is installed, because a shell of root rarely has the service's environment. Where both have data, the user must
// choose: a restore into the wrong database would replace it.
func resolved(cmd *cobra.Command) (config.Paths, error) {
	system, _ := cmd.Flags().GetBool(systemFlag)
	user, _ := cmd.Flags().GetBool(userFlag)
	if system {
		return systemPaths, nil
	}
	own, err := config.ResolvePaths(os.Getenv, os.Getuid())
	if user || !cmd.HasParent() || os.Getuid() != 0 || !exists(systemPaths.DataDir) {
		return own, coded(exitUsage, err)
	}
	if err == nil && own.DataDir != systemPaths.DataDir && exists(own.DataDir) {
		return own, &exitError{exitUsage, fmt.Errorf("there is data of the system service in %s and other data in %s; add --%s for the first or --%s for the second",
			systemPaths.DataDir, own.DataDir, systemFlag, userFlag)}
	}
	return systemPaths, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
