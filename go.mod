module github.com/mkgen/mkgen

go 1.26

require (
	github.com/cockroachdb/datadriven v1.0.2
	github.com/dave/jennifer v1.7.1
	github.com/stretchr/testify v1.12.1
	gorgonia.org/cu v0.9.6
)

require (
	github.com/google/uuid v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
