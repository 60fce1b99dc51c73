# docs/openapi.json becomes a source file of the server, so that GET /openapi.json needs no file beside the program.
set(openapi_document ${PROJECT_SOURCE_DIR}/docs/openapi.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${openapi_document})
file(READ ${openapi_document} BANKML_OPENAPI_DOCUMENT)
configure_file(${PROJECT_SOURCE_DIR}/src/server/openapi.cpp.in ${PROJECT_BINARY_DIR}/generated/openapi.cpp @ONLY)
target_sources(bankml_server PRIVATE ${PROJECT_BINARY_DIR}/generated/openapi.cpp)
