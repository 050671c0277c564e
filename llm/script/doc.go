// Package script is a model that follows a script, without a network.
package script

import _ "go.yaml.in/yaml/v3"
