package server

func (s *Server) adkRoutes() {}
