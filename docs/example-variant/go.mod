module example.com/chunked

go 1.26

require github.com/mkgen/mkgen v0.0.0

require github.com/dave/jennifer v1.7.1 // indirect

replace github.com/mkgen/mkgen => ../..
